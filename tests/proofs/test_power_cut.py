"""The power cut can fail: without each fsync it finds what is lost."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.crash import mounts
from tests.proofs import power_cut

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root"),
    pytest.mark.timeout(0),
]


@pytest.mark.parametrize("without", power_cut.MUTANTS)
def test_without_fsync_it_is_found_on_every_file_system(without: str) -> None:
    report = power_cut.run(2, 1, without=without)
    assert report.cases == 2 * len(mounts.KINDS)
    for kind in mounts.KINDS:
        assert any(broken.startswith(f"{kind},") for broken in report.broken), f"{kind}: nothing was found"


def test_every_mount_is_gone_when_the_process_is_killed(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from tests.crash import mounts\n"
        "image = mounts.Image.make(mounts.KINDS['ext4'], Path(sys.argv[1]) / 'image')\n"
        "with image.mounted() as root:\n"
        "    loop = next(l.split()[0] for l in open('/proc/self/mounts') if str(root) in l)\n"
        "    print(loop, open('/sys/block/' + loop[5:] + '/loop/backing_file').read(), end='', flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    argv = ["unshare", "--mount", "--propagation", "private", "python3", "-c", script, str(tmp_path)]
    ran = subprocess.run(argv, cwd=mounts.REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == -9, ran.stderr
    assert str(tmp_path / "image") in ran.stdout
    attached = subprocess.run(["losetup", "--all"], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in attached
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
