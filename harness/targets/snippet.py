"""What the shell of `Target.commands` reads: the feeds that lie beside model.onnx in the folder of a saved case."""

FEEDS = """\
import glob, onnx
from onnx import numpy_helper
graph = onnx.load('model.onnx', load_external_data=False).graph
inputs = [x.name for x in graph.input if x.name not in {w.name for w in graph.initializer}]
def feeds(kind):
    folders = sorted(glob.glob(f'{kind}_*'), key=lambda folder: (len(folder), folder))
    files = [[f'{folder}/input_{k}.pb' for k in range(len(inputs))] for folder in folders]
    return [{name: numpy_helper.to_array(onnx.load_tensor(file)) for name, file in zip(inputs, one)} for one in files]
tests = feeds('test_data_set')
calibration = feeds('calibration') or tests"""
