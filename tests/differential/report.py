"""Writes a case as a script that shows what plain dask gives and what gpusched gives."""

from __future__ import annotations

from tests.differential.case import Case
from tests.differential.comparing import Difference
from tests.differential.running import EVERY_CHUNK

FOOTER = '''\
def compared():
    """Print what this program gives with plain dask, and with gpusched."""
    import importlib.util
    import sys

    import gpusched

    dask.config.set({settings!r})
    scheduler = {scheduler!r}

    def computed(build):
        built = build()
        if isinstance(built, tuple):
            return dask.compute(*built, scheduler=scheduler)
        return built.compute(scheduler=scheduler)

    def observe(name, build):
        for label in (name, name + ", again"):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    value = computed(build)
                    print(f"{{label}}: {{type(value).__name__}} {{getattr(value, 'dtype', '')}}")
                    print(value)
                    if {scribble} and isinstance(value, np.ndarray) and value.flags.writeable:
                        value.fill(0)
                except Exception as error:
                    print(f"{{label}}: {{type(error).__name__}}: {{error}}")
            for each in sorted({{f"{{w.category.__name__}}: {{w.message}}" for w in caught}}):
                print("   ", each)

    observe.state = lambda name, read: print(f"{{name}} afterwards:", read())
    for title, switch in (("plain dask", gpusched.disable), ("gpusched", gpusched.enable)):
        print(f"---- {{title}}")
        spec = importlib.util.spec_from_file_location("case", __file__)
        module = sys.modules["case"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        with switch():
            module.main(observe)
        for name, array in module.DATA.items():
            print(f"input {{name}} afterwards:", array)


if __name__ == "__main__":
    compared()
'''

CLUSTER = """\
    # In a cluster within this process.
    stack = contextlib.ExitStack()
    scheduler = stack.enter_context(gpusched.local(2))
"""


def script(case: Case, found: list[Difference]) -> str:
    """Return a standalone script for a case, with the differences at its top."""
    lines = [f"# {each.category} ({each.where}): {each.text}" for each in found]
    title = "\n".join("# ".join(line.splitlines(keepends=True)) for line in lines)
    told = f"# {case.kind}, seed {case.seed}, computed with {case.scheduler}"
    if case.beside:
        told += " (by several threads at once, which this script does not do)"
    footer = FOOTER.format(settings={**EVERY_CHUNK, **case.config}, scheduler=case.scheduler,
                           scribble=case.scribble)  # fmt: skip
    if case.scheduler == "cluster":
        footer = footer.replace("    scheduler = 'cluster'\n", CLUSTER)
    return f"{told}\n{title}\n{case.source}\n\n{footer}"
