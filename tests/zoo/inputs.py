"""Inputs that make sense to trained models: drawn text, smooth pictures, speech-like sound, spectra, characters.

What a trained network makes of uniform noise says little: its activations stay where nobody calibrated them. Everything
here is made from a seed with numpy alone, so that a number measured on it can be measured again.
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray

# 5 x 7 letters, one row of bits a byte, the highest of five bits on the left.
_GLYPHS = {
    "A": "0e11111f111111", "B": "1e11111e11111e", "C": "0e11101010110e", "D": "1e11111111111e", "E": "1f10101e10101f",
    "H": "1111111f111111", "I": "0e04040404040e", "L": "1010101010101f", "N": "11191513111111", "O": "0e11111111110e",
    "P": "1e11111e101010", "R": "1e11111e141211", "S": "0f10100e01011e", "T": "1f040404040404", "0": "0e11131519110e",
    "1": "040c040404040e", "2": "0e11010204081f", "3": "1f02040201110e", "7": "1f010204080808",
}  # fmt: skip
_LETTERS = {letter: [int(bits[k : k + 2], 16) for k in range(0, 14, 2)] for letter, bits in _GLYPHS.items()}


def text_line(rng: np.random.Generator, height: int, width: int, size: int) -> Array:
    """float32 [height, width] in [0, 1]: dark letters, `size` pixels a dot, on paper with some grain."""
    image = 0.92 + 0.02 * rng.standard_normal((height, width))
    x, top = size, max(0, (height - 7 * size) // 2)
    while x + 6 * size <= width:
        rows = _LETTERS[str(rng.choice(list(_LETTERS)))]
        dots = np.array([[row >> (4 - k) & 1 for k in range(5)] for row in rows])
        ink = np.kron(dots, np.ones((size, size)))[: height - top]
        image[top : top + len(ink), x : x + 5 * size] -= 0.8 * ink
        x += 6 * size
    return np.clip(image, 0, 1).astype(np.float32)


def page(rng: np.random.Generator, height: int, width: int) -> Array:
    """float32 [height, width, 3] in [0, 1]: lines of text of several sizes, a dark bar and a picture between them."""
    image = np.full((height, width, 3), 0.95, np.float32)
    y = height // 16
    while y < height - 40:
        size = int(rng.integers(2, 5))
        line = text_line(rng, 10 * size, width - width // 8, size)
        if rng.random() < 0.2:
            line = photo(rng, 10 * size, line.shape[1])[..., 0]
        rows = min(len(line), height - y)
        image[y : y + rows, width // 16 : width // 16 + line.shape[1]] = line[:rows, :, None]
        y += 13 * size
    return image


def photo(rng: np.random.Generator, height: int, width: int) -> Array:
    """float32 [height, width, 3] in [0, 1]: a smooth background, a few ellipses, and a face with two eyes."""
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    image = 0.5 + 0.2 * np.stack([np.sin(rng.uniform(2, 6) * x + rng.uniform(2, 6) * y + k) for k in range(3)], -1)
    for _ in range(6):
        cy, cx, ry, rx = rng.uniform(0.1, 0.9, 2).tolist() + rng.uniform(0.05, 0.3, 2).tolist()
        image[((y - cy) / ry) ** 2 + ((x - cx) / rx) ** 2 < 1] = rng.uniform(0, 1, 3)
    cy, cx = rng.uniform(0.4, 0.6, 2)
    image[((y - cy) / 0.3) ** 2 + ((x - cx) / 0.22) ** 2 < 1] = (0.85, 0.65, 0.55)
    for side in (-0.09, 0.09):
        image[((y - cy + 0.08) / 0.03) ** 2 + ((x - cx - side) / 0.05) ** 2 < 1] = 0.1
    return np.clip(image + 0.02 * rng.standard_normal(image.shape), 0, 1).astype(np.float32)


def speech(rng: np.random.Generator, samples: int, rate: int) -> Array:
    """float32 [samples] in [-1, 1]: syllables of a voice (harmonics of 90 to 220 Hz, three formants) and pauses."""
    t = np.arange(samples) / rate
    pitch = rng.uniform(90, 220) * (1 + 0.1 * np.sin(2 * np.pi * rng.uniform(2, 5) * t))
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    syllable = np.floor(t * 4).astype(int)
    formants = rng.uniform((300, 900, 2200), (800, 2200, 3200), (syllable[-1] + 1, 3))[syllable]
    voiced = (rng.random(syllable[-1] + 1) < 0.75)[syllable]
    sound = np.zeros(samples)
    for k in range(1, 40):
        frequency = k * pitch
        gain = sum(np.exp(-(((frequency - formants[:, j]) / (150 + 100 * j)) ** 2)) / (1 + j) for j in range(3))
        sound += np.where(frequency < rate / 2.2, gain, 0) * np.sin(k * phase)
    envelope = np.sin(np.pi * (t * 4 % 1)) ** 2
    sound = np.where(voiced, sound, 0.2 * rng.standard_normal(samples)) * envelope
    return (0.6 * sound / np.abs(sound).max() + 0.002 * rng.standard_normal(samples)).astype(np.float32)


def music(rng: np.random.Generator, samples: int, rate: int) -> Array:
    """float32 [samples] in [-1, 1]: plucked notes of an equal-tempered scale, three harmonics each."""
    t, sound = np.arange(samples) / rate, np.zeros(samples)
    for start in np.arange(0, samples / rate, 0.25):
        note = 220 * 2 ** (rng.integers(0, 24) / 12)
        age = np.clip(t - start, 0, None)
        sound += sum(np.sin(2 * np.pi * k * note * age) / k for k in (1, 2, 3)) * np.exp(-4 * age) * (t >= start)
    return (0.7 * sound / np.abs(sound).max()).astype(np.float32)


def spectrum(sound: Array, window: int, hop: int) -> Array:
    """float32 [frames, window // 2 + 1]: the power spectrum of `sound` under a Hann window."""
    frames = np.lib.stride_tricks.sliding_window_view(sound, window)[::hop] * np.hanning(window)
    return (np.abs(np.fft.rfft(frames)) ** 2).astype(np.float32)


def mel(power: Array, rate: int, bands: int) -> Array:
    """float32 [frames, bands]: decibels of the mel bands (HTK's scale) of a power spectrum, the loudest at 0."""
    bins = power.shape[1]
    edges = 700 * (10 ** (np.linspace(0, np.log10(1 + rate / 2 / 700), bands + 2)) - 1) / (rate / 2) * (bins - 1)
    k = np.arange(bins)
    rising = (k - edges[:-2, None]) / np.maximum(edges[1:-1] - edges[:-2], 1)[:, None]
    falling = (edges[2:, None] - k) / np.maximum(edges[2:] - edges[1:-1], 1)[:, None]
    decibels = 10 * np.log10(np.maximum(power @ np.maximum(0, np.minimum(rising, falling)).T, 1e-10))
    return np.maximum(decibels - decibels.max(), -80).astype(np.float32)


def letters(rng: np.random.Generator, count: int, codes: int) -> Array:
    """int64 [count] below `codes`: words of frequent and rare letters, as Zipf has them."""
    return np.minimum(rng.zipf(1.3, count), codes - 1).astype(np.int64)


def file_bytes(rng: np.random.Generator, count: int) -> Array:
    """int32 [count] below 256: the bytes of a source text."""
    words = ["def ", "return ", "import ", "x", " = ", "(", ")", ":\n    ", "for i in range", "self.", '"name"', "\n"]
    text = "".join(words[k] for k in rng.integers(0, len(words), count))
    return np.frombuffer(text.encode()[:count], np.uint8).astype(np.int32)


def brain(rng: np.random.Generator, samples: int, rate: int) -> Array:
    """float32 [samples]: a brain's slow noise, as much power an octave lower, and bursts of 13 Hz of half a second."""
    frequencies = np.fft.rfftfreq(samples, 1 / rate)
    shaped = np.fft.rfft(rng.standard_normal(samples)) / np.maximum(frequencies, 0.5)
    sound = np.fft.irfft(shaped, samples)
    sound /= sound.std()
    t = np.arange(samples) / rate
    for start in rng.uniform(0, samples / rate, max(1, samples // rate // 5)):
        sound += 1.5 * np.exp(-(((t - start) / 0.4) ** 2)) * np.sin(2 * np.pi * 13 * t)
    return sound.astype(np.float32)


def wavelets(sound: Array, rate: int, frequencies: Array) -> Array:
    """float32 [frequencies, samples]: how loud each frequency is at each moment, under a Gaussian of six periods."""
    found = []
    for frequency in frequencies:
        t = np.arange(-3 / frequency, 3 / frequency, 1 / rate)
        kernel = np.exp(2j * np.pi * frequency * t - (t * frequency) ** 2)
        found.append(np.abs(np.convolve(sound, kernel, "same")))
    return standard(np.stack(found))


def standard(x: Array) -> Array:
    """Each row with the mean taken off, over its deviation; a row of equal numbers is 0."""
    deviation = x.std(-1, keepdims=True)
    return ((x - x.mean(-1, keepdims=True)) / np.where(deviation > 0, deviation, 1)).astype(np.float32)


def chain(rng: np.random.Generator, count: int, reach: float) -> tuple[Array, Array]:
    """(positions [count, 3], edges [2, n]) of a chain of steps of 1.5, as atoms are: what is nearer than `reach`."""
    steps = rng.standard_normal((count, 3)) + 0.6
    positions = np.cumsum(1.5 * steps / np.linalg.norm(steps, axis=1, keepdims=True), axis=0)
    apart = np.linalg.norm(positions[:, None] - positions, axis=-1)
    return positions.astype(np.float32), np.stack(np.nonzero((apart > 0) & (apart < reach))).astype(np.int64)


def molecule(rng: np.random.Generator, count: int) -> Array:
    """int64 [count, count]: bonds between each two of `count` atoms of a branched chain with a ring of six."""
    hops = np.full((count, count), count)
    np.fill_diagonal(hops, 0)
    for k in range(1, count):
        to = k - 1 if rng.random() < 0.7 else int(rng.integers(0, k))
        hops[k, to] = hops[to, k] = 1
    hops[0, min(5, count - 1)] = hops[min(5, count - 1), 0] = 1
    for k in range(count):
        hops = np.minimum(hops, hops[:, k : k + 1] + hops[k])
    return hops.astype(np.int64)


def fingerprint(rng: np.random.Generator, height: int, width: int) -> Array:
    """Ridges nine pixels apart that bend and whirl, dark on light, 0 to 255."""
    y, x = np.mgrid[:height, :width].astype(np.float64)
    bend = sum(a * np.sin((x * b + y * c) / 30) for a, b, c in rng.normal(size=(4, 3)))
    away = np.hypot(y - height * rng.uniform(0.3, 0.7), x - width * rng.uniform(0.3, 0.7))
    ridges = 0.5 + 0.5 * np.sin(2 * np.pi * away / 9 + bend)
    return np.clip(255 * (0.15 + 0.7 * ridges + 0.05 * rng.normal(size=y.shape)), 0, 255).astype(np.float32)


def blocks(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
    """(boxes [count, 4], edges [2, 4 * count]): lines of text in two columns of a page of size 1, from left to right
    and top to bottom each; and each with the four whose middles are nearest."""
    left, top = rng.choice([0.08, 0.52], count), np.sort(rng.uniform(0.05, 0.9, count))
    boxes = np.stack([left, top, left + rng.uniform(0.1, 0.4, count), top + rng.uniform(0.01, 0.05, count)], 1)
    middles = (boxes[:, :2] + boxes[:, 2:]) / 2
    apart = np.linalg.norm(middles[:, None] - middles, axis=-1) + 10 * np.eye(count)
    near = np.argsort(apart, 1)[:, :4]
    edges = np.stack([np.repeat(np.arange(count), 4), near.ravel()])
    return boxes.astype(np.float32), edges.astype(np.int64)
