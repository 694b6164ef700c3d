"""Can this Python, on this machine, run the project? Prints the reason and exits 1 where it can't.

Runs with any Python 3 from 3.6 on and with nothing installed, so its syntax is old on purpose.
"""

import importlib.util
import os
import platform
import sys
import sysconfig

# The server's wheel has a stub for each of these; 3.13 has one too, but no numpy below 2, which the stub needs.
OLDEST, NEWEST = (3, 10), (3, 12)
MACHINE = "x86_64"
GLIBC = (2, 35)


def version_refusal(version: "tuple[int, int]") -> "str | None":
    """Why a Python of this version can't run the project; None if it can."""
    if OLDEST <= version <= NEWEST:
        return None
    found = "{}.{}".format(*version)
    why = "there is no numpy 1.26 for it" if version > NEWEST else "it is too old"
    return (
        f"this is Python {found} ({why}); Python 3.10, 3.11 or 3.12 is needed; choose one with PYTHON=/path/to/python3"
    )


def machine_refusal(system: str, machine: str, c_library: "str | None") -> "str | None":
    """The same for the operating system, the processor and the C library ("glibc 2.36", None where it isn't glibc)."""
    if system != "Linux" or machine not in (MACHINE, "AMD64"):
        return f"this machine is {system} on {machine}; tritonserver's package only exists for Linux on {MACHINE}"
    needed = "glibc {}.{}".format(*GLIBC)
    if not c_library or not c_library.startswith("glibc "):
        return (
            f"the C library here is not glibc; tritonserver needs {needed} or newer (Debian 12, Ubuntu 22.04 or later)"
        )
    found = tuple(int(part) for part in c_library.split()[1].split(".")[:2])
    if found < GLIBC:
        return f"{c_library} is too old; tritonserver needs {needed} or newer (Debian 12, Ubuntu 22.04 or later)"
    return None


def parts_refusal(version: "tuple[int, int]", libpython: "str | None", has_venv: bool) -> "str | None":
    """The same for what distributions split off: the shared library and the venv module."""
    name = "python{}.{}".format(*version)
    if libpython is None:
        return (
            f"there is no shared library lib{name}.so.1.0, which tritonserver's python backend needs; "
            f"install it (Debian, Ubuntu: apt install lib{name}) or use a Python built with --enable-shared"
        )
    if not has_venv:
        return f"its venv module is missing or incomplete; install it (Debian, Ubuntu: apt install {name}-venv)"
    return None


def find_libpython() -> "str | None":
    """The path of this Python's shared library; None if there is none."""
    name = "libpython{}.{}.so.1.0".format(*sys.version_info[:2])
    folders = [sysconfig.get_config_var("LIBDIR"), os.path.join(sys.base_prefix, "lib"), *_system_folders()]
    paths = (os.path.join(folder, name) for folder in folders if folder)
    return next((path for path in paths if os.path.isfile(path)), None)


def _system_folders() -> "list[str]":
    triplet = sysconfig.get_config_var("MULTIARCH") or "x86_64-linux-gnu"
    return [f"/usr/lib/{triplet}", f"/lib/{triplet}", "/usr/lib64", "/usr/local/lib", "/usr/lib"]


def has_modules(*names: str) -> bool:
    """Whether all of them can be imported; an empty folder of that name doesn't count."""
    specs = [importlib.util.find_spec(name) for name in names]
    return all(spec is not None and spec.origin is not None for spec in specs)


def c_library() -> "str | None":
    """As in "glibc 2.36"; None where it isn't glibc."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        return None


def refusal(target: str = "cpu") -> "str | None":
    """Why this Python on this machine can't run the project, in one line; None if it can."""
    version = sys.version_info[:2]
    if target == "gpu":  # nothing is set up there: the image has its server and its packages
        return version_refusal(version) if version < OLDEST else None
    return (
        machine_refusal(platform.system(), platform.machine(), c_library())
        or version_refusal(version)
        or parts_refusal(version, find_libpython(), has_modules("venv", "ensurepip"))
    )


if __name__ == "__main__":
    reason = refusal(*sys.argv[1:2])
    if reason:
        print(reason)
        sys.exit(1)
