package vm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// kernel is a bootable kernel, with an initrd that has the modules for the machine's devices.
type kernel struct {
	version string // the kernel's release, as uname -r prints it
	image   string // the path of vmlinuz
	initrd  string // the path of the initrd
}

// modules lists the modules that the guests' devices, containerd and the script of test/kernel/script (bfq) need. Some
// are built into a kernel. Then the kernel has no file for the module.
var modules = []string{"virtio_pci", "virtio_blk", "virtio_net", "virtio_rng", "overlay", "bfq"}

// kernels has the kernels that kernelOf has fetched, by series, because each request to Debian's archive takes a
// second.
var kernels sync.Map

// kernelOf returns the kernel of a series, such as 6.1. At the first call it fetches the kernel and makes the initrd,
// which mounts the root disk.
func kernelOf(ctx context.Context, series string) (kernel, error) {
	if k, ok := kernels.Load(series); ok {
		return k.(kernel), nil
	}
	k, err := fetchKernel(ctx, series)
	if err == nil {
		kernels.Store(series, k)
	}
	return k, err
}

// fetchKernel fetches the kernel of a series and makes the initrd. It does not use the variable kernels.
func fetchKernel(ctx context.Context, series string) (kernel, error) {
	out, err := runBuildCommand(exec.CommandContext(ctx, filepath.Join(packageDir(), "../tools/kernel.sh"), series))
	if err != nil {
		return kernel{}, err
	}
	dir := strings.TrimSpace(out)
	trees, err := filepath.Glob(filepath.Join(dir, "lib/modules/*"))
	if err != nil {
		return kernel{}, err
	}
	if len(trees) != 1 {
		return kernel{}, fmt.Errorf("kernel %s: the package must have one directory of modules, but has %v", series, trees)
	}
	k := kernel{version: filepath.Base(trees[0]), image: filepath.Join(dir, "vmlinuz")}
	archive, err := makeInitrd(ctx, trees[0])
	if err != nil {
		return kernel{}, fmt.Errorf("kernel %s: %w", series, err)
	}
	cache, err := cacheDir()
	if err != nil {
		return kernel{}, err
	}
	sum := sha256.Sum256(archive)
	k.initrd = filepath.Join(cache, fmt.Sprintf("initrd-%s-%x", k.version, sum[:8]))
	return k, writeFileOnce(k.initrd, archive)
}

// makeInitrd returns the archive of an initrd. At boot, the initrd loads the modules in the order of their dependencies,
// and mounts the root disk. The parameter dir is the kernel's directory of modules.
func makeInitrd(ctx context.Context, dir string) ([]byte, error) {
	t := tree{}
	t.addDirs("/dev", "/proc", "/sys", "/root")
	t.addProgram("/bin/busybox", "/bin/busybox")
	if err := t.addEmbedded(rootfs, "rootfs/initrd"); err != nil {
		return nil, err
	}
	deps, err := os.ReadFile(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return nil, err
	}
	var order []string
	for _, file := range moduleFiles(string(deps), modules) {
		b, err := readModule(ctx, filepath.Join(dir, file))
		if err != nil {
			return nil, err
		}
		name := moduleName(file)
		order = append(order, name)
		t["/modules/"+name] = treeEntry{mode: 0o644, content: b}
	}
	t.addText("/modules/order", strings.Join(order, "\n")+"\n")
	var b bytes.Buffer
	err = t.writeCPIO(&b)
	return b.Bytes(), err
}

// moduleFiles returns the files in deps, the text of modules.dep, that the named modules need. Each file comes after
// the files on which it depends.
func moduleFiles(deps string, names []string) []string {
	needs, file := map[string][]string{}, map[string]string{}
	for line := range strings.Lines(deps) {
		first, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		file[moduleName(first)] = first
		needs[first] = strings.Fields(rest) // the direct dependencies come first in this list
	}
	var found []string
	for _, name := range names {
		first := file[name]
		if first == "" {
			continue
		}
		chain := slices.Clone(needs[first])
		slices.Reverse(chain)
		for _, f := range append(chain, first) {
			if !slices.Contains(found, f) {
				found = append(found, f)
			}
		}
	}
	return found
}

// moduleName returns the name of the module in a file, such as virtio_pci for virtio-pci.ko.xz.
func moduleName(file string) string {
	name, _, _ := strings.Cut(path.Base(file), ".")
	return strings.ReplaceAll(name, "-", "_")
}

// readModule reads the file of a module. Newer kernels have compressed files, which readModule unpacks.
func readModule(ctx context.Context, file string) ([]byte, error) {
	if !strings.HasSuffix(file, ".xz") {
		return os.ReadFile(file)
	}
	b, err := exec.CommandContext(ctx, "xz", "-dc", file).Output()
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", file, err)
	}
	return b, nil
}
