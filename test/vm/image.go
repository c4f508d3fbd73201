package vm

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// diskSize is the size of the root disk, for mkfs.ext4. The image file is sparse.
const diskSize = "3G"

// guestProgram returns the path of the helper program that runs in guests (test/vm/guest). It builds the program once
// per process.
var guestProgram = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "ttagent")
	if err != nil {
		return "", err
	}
	atEnd(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "guest"), goBuild(context.Background(), dir, "test/vm", "./guest")
})

// image returns the path of the image of a guest's root disk. It makes the image if the cache does not have it.
func (g Guest) image(ctx context.Context) (string, error) {
	t, base, err := g.root(ctx)
	if err != nil {
		return "", err
	}
	hash, err := t.hash()
	if err != nil {
		return "", err
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	name := "root-" + g.imageVariant() + "-" + hash
	if base != "" {
		name += "-" + strings.TrimSuffix(filepath.Base(base), ".tar")
	}
	path := filepath.Join(cache, name+".ext4")
	return path, buildOnce(path, func(work string) error {
		printProgress("making the root disk %s", filepath.Base(path))
		folder, err := os.MkdirTemp(cache, ".root")
		if err != nil {
			return err
		}
		defer os.RemoveAll(folder)
		if err := os.Chmod(folder, 0o755); err != nil {
			return err
		}
		if base != "" {
			if _, err := runBuildCommand(exec.CommandContext(ctx, "tar", "-C", folder, "-xf", base)); err != nil {
				return err
			}
		}
		if err := t.writeTo(folder); err != nil {
			return err
		}
		return makeExt4(ctx, folder, work, diskSize)
	})
}

// imageVariant returns the part of the image's name that tells the first process and the stage of the guest.
func (g Guest) imageVariant() string {
	name := "busybox"
	if g.Systemd {
		name = "systemd"
	}
	return name + "-" + g.Stage.String()
}

// root returns the content of the root disk: a tree, and for a guest with systemd also the path of an archive of
// Debian. Files of the tree replace files of the archive.
func (g Guest) root(ctx context.Context) (tree, string, error) {
	t := tree{}
	program, err := guestProgram()
	if err != nil {
		return nil, "", err
	}
	t.addProgram("/usr/local/bin/guest", program)
	if g.Stage == Containerd {
		if err := t.addRuntime(g.Systemd); err != nil {
			return nil, "", err
		}
	}
	if g.Systemd {
		base, err := debianArchive(ctx)
		if err != nil {
			return nil, "", err
		}
		if err := t.addSystemd(g.Stage); err != nil {
			return nil, "", err
		}
		return t, base, t.addEmbedded(rootfs, "rootfs/systemd")
	}
	return t, "", t.addBusybox()
}

// addBusybox adds a system whose only program is busybox.
func (t tree) addBusybox() error {
	t.addDirs("/dev", "/proc", "/sys", "/run", "/tmp", "/root", "/var/log", "/var/lib", "/payload")
	t.addLink("/var/run", "/run")
	t.addProgram("/bin/busybox", "/bin/busybox")
	applets, err := exec.Command("/bin/busybox", "--list-full").Output()
	if err != nil {
		return err
	}
	for at := range strings.FieldsSeq(string(applets)) {
		if at = "/" + at; at != "/bin/busybox" {
			t.addLink(at, "/bin/busybox")
		}
	}
	t.addLink("/sbin/init", "/bin/busybox")
	t.addText("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n")
	t.addText("/etc/group", "root:x:0:\n")
	t.addText("/etc/hosts", "127.0.0.1 localhost node\n")
	t.addText("/etc/hostname", "node\n")
	t.addText("/etc/resolv.conf", "nameserver 10.0.2.3\n")
	return t.addEmbedded(rootfs, "rootfs/busybox")
}

// addRuntime adds containerd and a kubelet, and their configuration.
func (t tree) addRuntime(systemd bool) error {
	bin, err := pinnedTools()
	if err != nil {
		return err
	}
	for _, source := range []string{
		bin.containerd + "/containerd", bin.containerd + "/containerd-shim-runc-v2", bin.runc + "/runc", bin.kubelet + "/kubelet",
	} {
		t.addProgram("/usr/local/bin/"+filepath.Base(source), source)
	}
	t.addDirs("/etc/nri/conf.d", "/opt/nri/plugins", "/etc/cni/net.d", "/opt/cni/bin", "/etc/kubernetes/manifests", "/var/log/pods")
	if err := t.addEmbedded(rootfs, "rootfs/runtime"); err != nil {
		return err
	}
	config := string(t[containerdConfig].content)
	if systemd {
		config = strings.ReplaceAll(config, "SystemdCgroup = false", "SystemdCgroup = true")
	}
	t.addText(containerdConfig, config)
	return nil
}

// containerdConfig is the path of containerd's configuration in a guest.
const containerdConfig = "/etc/containerd/config.toml"
