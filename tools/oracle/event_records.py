"""Writes tests/golden/event_file.json: records of a TensorBoard file, as the tensorboard package writes them."""

import io
from pathlib import Path

from common import write_json
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.summary.writer.record_writer import RecordWriter

TARGET = Path(__file__).resolve().parents[2] / "tests" / "golden" / "event_file.json"


def record(event):
    class File(io.BytesIO):
        def close(self):
            pass

    file = File()
    RecordWriter(file).write(event.SerializeToString())
    return file.getvalue().hex()


def text_event(seconds, step, tag, text):
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
    tensor = TensorProto(dtype="DT_STRING", string_val=[text.encode()], tensor_shape=shape)
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    value = Summary.Value(tag=tag + "/text_summary", metadata=metadata, tensor=tensor)
    return Event(wall_time=seconds, step=step, summary=Summary(value=[value]))


def scalar_event(seconds, step, tag, number):
    return Event(wall_time=seconds, step=step, summary=Summary(value=[Summary.Value(tag=tag, simple_value=number)]))


def main():
    write_json(TARGET, {
        "version": record(Event(wall_time=1700000000.25, file_version="brain.Event:2")),
        "text": record(text_event(1700000000.5, 0, "args", "{}")),
        "scalar": record(scalar_event(1700000001.0, 7, "train/loss", 8.319)),
        "zero": record(scalar_event(1700000001.5, 300000, "eval/accuracy", 0.0)),
    })


if __name__ == "__main__":
    main()
