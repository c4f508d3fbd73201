package debian_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/deploy/pack/test/tree"
)

// host is a private root directory into which dpkg installs.
type host struct {
	t    *testing.T
	root string
}

func newHost(t *testing.T) host {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("dpkg needs root")
		}
		t.Skip("dpkg needs root")
	}
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("SKIPPED: no dpkg on this host")
	}
	h := host{t, t.TempDir()}
	for _, dir := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "run", "sys/fs/cgroup"} {
		if err := os.MkdirAll(h.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.write("var/lib/dpkg/status", "")
	return h
}

func (h host) path(name string) string { return filepath.Join(h.root, name) }

func (h host) write(name, text string) {
	h.t.Helper()
	if err := os.WriteFile(h.path(name), []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

// dpkg runs the maintainer scripts with DPKG_ROOT and without chroot, since the root directory has no shell.
func (h host) dpkg(args ...string) string {
	h.t.Helper()
	args = append([]string{"--root=" + h.root, "--force-script-chrootless", "--log=" + h.path("dpkg.log")}, args...)
	out, err := exec.CommandContext(h.t.Context(), "dpkg", args...).CombinedOutput()
	if err != nil {
		h.t.Fatalf("dpkg %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (h host) has(name string) bool {
	_, err := os.Lstat(h.path(name))
	return err == nil
}

// made makes packages in a separate tree, and returns this machine's.
func made(t *testing.T, arches ...string) string {
	t.Helper()
	dir := tree.Copy(t)
	t.Log(strings.TrimSpace(tree.Run(t, dir, "make", "deb", "ARCHES="+strings.Join(arches, " "))))
	for _, arch := range arches {
		file := filepath.Join(dir, "dist", "trimtab_1.2.3_"+arch+".deb")
		if got := strings.TrimSpace(tree.Run(t, dir, "dpkg-deb", "--field", file, "Architecture")); got != arch {
			t.Errorf("%s is for %q", file, got)
		}
	}
	return filepath.Join(dir, "dist", "trimtab_1.2.3_"+runtime.GOARCH+".deb")
}

// TestPackage makes the packages twice with equal bytes, and installs, upgrades, removes and purges one.
func TestPackage(t *testing.T) {
	h := newHost(t)
	deb, again := made(t, "amd64", "arm64"), made(t, runtime.GOARCH)
	a, err := os.ReadFile(deb)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(again); err != nil || !bytes.Equal(a, b) {
		t.Errorf("two directories, two packages (%v)", err)
	}
	h.dpkg("--install", deb)
	files := []string{
		"usr/bin/trimtab", "usr/bin/trimtab-oci", "etc/trimtab/config.yaml", "usr/share/doc/trimtab/copyright", "usr/share/man/man1/trimtab.1",
		"usr/share/man/man5/trimtab-config.5",
		"usr/lib/systemd/system/trimtab-nri.service", "usr/lib/systemd/system/trimtab-bypass.service",
		"usr/lib/systemd/system/trimtab.service", "usr/lib/systemd/system/trimtab.socket",
	}
	for _, f := range files {
		if !h.has(f) {
			t.Errorf("no %s", f)
		}
	}
	program := h.path("usr/bin/trimtab")
	if out, err := exec.Command(program, "version").Output(); err != nil || !strings.Contains(string(out), tree.Version) {
		t.Errorf("trimtab version: %q, %v", out, err)
	}
	if out, err := exec.Command(program, "config", "check", h.path("etc/trimtab/config.yaml")).CombinedOutput(); err != nil {
		t.Errorf("trimtab config check: %v\n%s", err, out)
	}

	// The administrator's configuration survives an upgrade and a removal.
	own := fmt.Sprintf("apiVersion: trimtab.io/v1alpha1\nkind: Config\ncgroup: {root: %s, version: v2}\n"+
		"paths: {statusSocket: %s, state: %s, key: %s}\n", h.path("sys/fs/cgroup"), h.path("run/trimtab.sock"),
		h.path("var/lib/trimtab"), h.path("etc/trimtab/record.key"))
	h.write("etc/trimtab/config.yaml", own)
	h.write("sys/fs/cgroup/cgroup.controllers", "cpuset cpu memory\n")
	if said := h.dpkg("--install", deb); strings.Contains(said, released) || h.has("var/lib/trimtab/purge") {
		t.Errorf("an upgrade restores values:\n%s", said)
	}
	if said := h.dpkg("--remove", "trimtab"); strings.Contains(said, released) {
		t.Errorf("a removal restores values:\n%s", said)
	}
	if h.has("usr/bin/trimtab") || !h.has("etc/trimtab/config.yaml") || !h.has("var/lib/trimtab/purge/trimtab") {
		t.Error("a removal leaves the program, or removes the configuration or the files for a purge")
	}
	if got, err := os.ReadFile(h.path("var/lib/trimtab/purge/config.yaml")); err != nil || string(got) != own {
		t.Errorf("kept configuration %q, %v", got, err)
	}
	h.write("etc/trimtab/record.key", "secret")
	if said := h.dpkg("--purge", "trimtab"); !strings.Contains(said, released) {
		t.Errorf("a purge does not restore values:\n%s", said)
	}
	for _, gone := range []string{"etc/trimtab", "var/lib/trimtab", "usr/bin/trimtab"} {
		if h.has(gone) {
			t.Errorf("%s is left after a purge", gone)
		}
	}
}

// released is in the output of `trimtab release` if no agent ran.
const released = "trimtab: release without an agent"

// TestUnits checks the units with systemd, and their exposure against docs/install.md.
func TestUnits(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("SKIPPED: no systemd-analyze on this host")
	}
	from, dir := filepath.Join(tree.Root(t), "deploy/systemd"), t.TempDir()
	units, err := filepath.Glob(filepath.Join(from, "*.*"))
	if err != nil || len(units) != 4 {
		t.Fatalf("units %v, %v", units, err)
	}
	var services []string
	for i, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		// The program is not installed on the test machine.
		text = bytes.ReplaceAll(text, []byte("/usr/local/bin/trimtab"), []byte("/bin/true"))
		units[i] = filepath.Join(dir, filepath.Base(unit))
		if err := os.WriteFile(units[i], text, 0o600); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(unit, ".service") {
			services = append(services, units[i])
		}
	}
	verify := append([]string{"verify", "--man=no", "--recursive-errors=no"}, units...)
	if out, err := exec.Command("systemd-analyze", verify...).CombinedOutput(); err != nil || strings.Contains(string(out), dir) {
		t.Errorf("%v\n%s", err, out)
	}
	if slices.Sort(services); len(services) != 3 {
		t.Fatalf("services %v", services)
	}
	for _, s := range services {
		out, err := exec.Command("systemd-analyze", "security", "--offline=yes", "--threshold=28", s).CombinedOutput()
		if err != nil {
			t.Errorf("%s is more exposed than 2.8: %v\n%s", filepath.Base(s), err, out)
		}
	}
}
