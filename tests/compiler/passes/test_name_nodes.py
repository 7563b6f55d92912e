from dataclasses import replace

from single_pass import assert_same, pairs

from mtool.compiler.kernels.conv2d.node import Conv2d


def test_names_are_short_unique_and_in_order() -> None:
    for kind in ("float", "int8"):
        for before, after in pairs("name_nodes", kind, 12):
            named = [node.name for node in after.nodes if node.op != "view"]
            assert [int(name.rpartition("_")[2]) for name in named] == [*range(len(named))]
            assert len({node.name for node in after.nodes}) == len(after.nodes)
            assert [replace(node, name="") for node in before.nodes] == [replace(node, name="") for node in after.nodes]
            assert_same(before, after)


def test_a_name_says_what_the_operator_is() -> None:
    stems: dict[str, set[str]] = {}
    for kind in ("float", "int8"):
        for _, after in pairs("name_nodes", kind, 25):
            for node in after.nodes:
                if node.op != "view":
                    stems.setdefault(node.op, set()).add(node.name.rpartition("_")[0])
    assert stems["conv2d"] == {"conv", "dw", "pw"} and stems["pool2d"] == {"pool"}
    assert stems["dense"] == {"dense"} and stems["softmax"] == {"softmax"}
    assert "quantize" in stems["loop"] or "flatten" in stems["loop"] or "transpose" in stems["loop"]
    for _, after in pairs("name_nodes", "float", 25):
        for node in after.nodes:
            if node.name.startswith("dw_"):
                assert Conv2d.of(node).group > 1
            if node.name.startswith("pw_"):
                assert Conv2d.of(node).kernel == (1, 1) and Conv2d.of(node).group == 1
