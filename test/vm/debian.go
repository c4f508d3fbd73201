package vm

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
)

// debianArchive returns the path of an archive with a small Debian system that has systemd.
func debianArchive(ctx context.Context) (string, error) {
	out, err := runBuildCommand(exec.CommandContext(ctx, filepath.Join(packageDir(), "../tools/debian.sh")))
	return strings.TrimSpace(out), err
}

// addSystemd adds the files that a guest needs in addition to the Debian archive.
func (t tree) addSystemd(s Stage) error {
	t.addDirs("/payload")
	t.addText("/etc/hostname", "node\n")
	t.addText("/etc/hosts", "127.0.0.1 localhost node\n")
	t.addText("/etc/resolv.conf", "nameserver 10.0.2.3\n")
	t.addText("/etc/fstab", "")
	t.addText("/etc/machine-id", "5c6d1bd0ce5f4d0f8f4e7ad6a7a4c001\n")
	wants := "/etc/systemd/system/multi-user.target.wants/"
	for _, unit := range []string{"guest.service", "network-guest.service"} {
		t.addLink(wants+unit, "/etc/systemd/system/"+unit)
	}
	t.addLink("/etc/systemd/system/default.target", "/lib/systemd/system/multi-user.target")
	// Mask these units. They only take time, or read the disk with the programs before QEMU has attached this disk.
	for _, unit := range []string{
		"getty.target", "systemd-timesyncd.service", "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer",
		"e2scrub_reap.service", "fstrim.timer", "systemd-update-utmp.service", "systemd-udevd.service", "systemd-udev-trigger.service",
		"serial-getty@ttyS0.service", "proc-sys-fs-binfmt_misc.automount", "console-getty.service", "systemd-logind.service", "systemd-pcrphase.service", "systemd-pcrphase-sysinit.service",
	} {
		t.addLink("/etc/systemd/system/"+unit, "/dev/null")
	}
	if s == Bare {
		return nil
	}
	return t.addEmbedded(rootfs, "rootfs/systemd-runtime")
}
