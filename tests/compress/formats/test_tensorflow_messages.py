from cnai.compress.formats.tensorflow_messages import GraphDef, NodeDef


def again(message):
    copy = type(message)()
    copy.ParseFromString(message.SerializeToString())
    return copy


def test_a_flag_that_is_false_is_still_written():
    node = NodeDef(name="n")
    node.attr["transpose_a"].b = False
    assert again(node).attr["transpose_a"].WhichOneof("value") == "b"


def test_fields_that_are_not_named_here_survive():
    # Field 6 of NodeDef is experimental_debug_info.
    raw = NodeDef(name="n", op="Add").SerializeToString() + b"\x32\x03\x0a\x01z"
    node = NodeDef()
    node.ParseFromString(raw)
    assert b"\x32\x03\x0a\x01z" in again(node).SerializeToString()


def test_a_graph_comes_back_equal():
    graph = GraphDef()
    graph.node.add(name="a", op="Placeholder").attr["dtype"].type = 1
    graph.versions.producer = 1882
    assert again(graph) == graph
