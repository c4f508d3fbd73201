package cdispec_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/internal/cdispec"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// write makes a directory with files, "" for a directory, and returns its path.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func spec(kind, devices string) string {
	return "cdiVersion: 0.6.0\nkind: " + kind + "\ncontainerEdits: {env: [COMMON=1]}\ndevices:\n" + devices
}

func TestReadsWhatADeviceAdds(t *testing.T) {
	dir := write(t, map[string]string{
		"net.yaml": spec("vendor.com/nic", `
- {name: "0000:3b:00.0", containerEdits: {env: [NIC=a, X=], deviceNodes: [{path: /dev/nic0, hostPath: /dev/null}]}}
- {name: numbered, containerEdits: {deviceNodes: [{path: /dev/absent, type: c, major: 9, minor: 3}]}}
- {name: lost, containerEdits: {deviceNodes: [{path: /dev/no-such-device}]}}
- {name: other, containerEdits: {deviceNodes: [{path: /dev/null, type: b}]}}
`),
		"env.json":  `{"cdiVersion":"0.5.0","kind":"dra.cpu/cpu","devices":[{"name":"claim-1","containerEdits":{"env":["DRA_CPUSET_x=0-3"]}}]}`,
		"README.md": "no specification",
	})
	got, faults := cdispec.Read([]string{"/no/such/directory", dir})
	want := []cdispec.Device{
		{Name: "dra.cpu/cpu=claim-1", Kind: "dra.cpu/cpu", Env: []string{"DRA_CPUSET_x=0-3"}, File: dir + "/env.json"},
		{
			Name: "vendor.com/nic=0000:3b:00.0", Kind: "vendor.com/nic", Env: []string{"NIC=a", "X="}, File: dir + "/net.yaml",
			Nodes: []lifecycle.Device{{Path: "/dev/nic0", Host: "/dev/null", Type: "c", Major: 1, Minor: 3}},
		},
		{
			Name: "vendor.com/nic=lost", Kind: "vendor.com/nic", File: dir + "/net.yaml",
			Nodes: []lifecycle.Device{{Path: "/dev/no-such-device", Host: "/dev/no-such-device"}},
		},
		{
			Name: "vendor.com/nic=numbered", Kind: "vendor.com/nic", File: dir + "/net.yaml",
			Nodes: []lifecycle.Device{{Path: "/dev/absent", Host: "/dev/absent", Type: "c", Major: 9, Minor: 3}},
		},
		{
			Name: "vendor.com/nic=other", Kind: "vendor.com/nic", File: dir + "/net.yaml",
			Nodes: []lifecycle.Device{{Path: "/dev/null", Host: "/dev/null", Type: "b"}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" || len(faults) > 0 {
		t.Errorf("faults %v, devices (-want +got):\n%s", faults, diff)
	}
}

// names lists the names of devices.
func names(devices []cdispec.Device) string {
	var all []string
	for _, d := range devices {
		all = append(all, d.Name)
	}
	return strings.Join(all, " ")
}

// A device of a later directory counts. If a directory has it twice, it is left out, as in a runtime, and
// then the device of an earlier directory does not count either.
func TestPrecedence(t *testing.T) {
	device := func(name, env string) string {
		return fmt.Sprintf("- {name: %s, containerEdits: {env: [%s]}}\n", name, env)
	}
	static := write(t, map[string]string{"a.yaml": spec("v.com/c", device("x", "FROM=static")+device("y", "FROM=static"))})
	dynamic := write(t, map[string]string{
		"a.yaml": spec("v.com/c", device("x", "FROM=dynamic")+device("z", "A=1")+device("y", "A=1")),
		"b.yaml": spec("v.com/c", device("z", "A=2")+device("y", "A=2")),
		"c.yaml": spec("v.com/c", device("z", "A=3")),
	})
	got, faults := cdispec.Read([]string{static, dynamic})
	if names(got) != "v.com/c=x" || got[0].Env[0] != "FROM=dynamic" {
		t.Errorf("devices are %v", got)
	}
	if text := fmt.Sprint(faults); !strings.Contains(text, "a.yaml: v.com/c=z is also defined in ") || !strings.Contains(text, "c.yaml: v.com/c=z") {
		t.Errorf("faults are %s", text)
	}
	if got, faults := cdispec.Read([]string{dynamic, static}); names(got) != "v.com/c=x v.com/c=y" || len(faults) == 0 {
		t.Errorf("in the other order: devices %s, faults %v", names(got), faults)
	}
}

func TestABrokenFileLosesOnlyItself(t *testing.T) {
	good := spec("v.com/c", "- {name: x, containerEdits: {env: [A=1]}}\n")
	for name, c := range map[string]struct{ text, reason string }{
		"no YAML":         {"{", "not a CDI specification"},
		"empty":           {"", "not a CDI specification"},
		"null":            {"null", "no Spec data"},
		"an unknown key":  {good + "more: 1\n", "field more not found"},
		"a wrong type":    {"cdiVersion: [1]\n", "cannot unmarshal"},
		"no device":       {spec("v.com/c", "  []\n"), "no devices"},
		"a wrong kind":    {spec("none", "- {name: x, containerEdits: {env: [A=1]}}\n"), "vendor"},
		"a wrong name":    {spec("v.com/c", "- {name: 'a=b', containerEdits: {env: [A=1]}}\n"), "a=b"},
		"no edits":        {spec("v.com/c", "- {name: x}\n"), "empty device edits"},
		"a newer version": {strings.Replace(good, "0.6.0", "99.0.0", 1), "version"},
		"too large":       {good + strings.Repeat("#", 4<<20), "larger than"},
		"a bomb":          {"a: &a [x,x,x,x]\nb: &b [*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b]\nkind: [*c,*c,*c]\n", "not a CDI specification"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := write(t, map[string]string{"bad.yaml": c.text, "good.yaml": strings.Replace(good, "name: x", "name: good", 1)})
			got, faults := cdispec.Read([]string{dir})
			if names(got) != "v.com/c=good" {
				t.Errorf("devices are %s", names(got))
			}
			if len(faults) != 1 || faults[0].File != dir+"/bad.yaml" || !strings.Contains(faults[0].Reason, c.reason) || strings.Contains(faults[0].Reason, "\n") {
				t.Errorf("faults are %q, want one of bad.yaml with %q", faults, c.reason)
			}
		})
	}
}

// What is no file blocks nothing: opening a pipe would wait for ever.
func TestPipesAndDirectories(t *testing.T) {
	dir := write(t, map[string]string{"good.json": `{"cdiVersion":"0.5.0","kind":"v.com/c","devices":[{"name":"x","containerEdits":{"env":["A=1"]}}]}`})
	if err := unix.Mkfifo(dir+"/pipe.yaml", 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir+"/more.yaml", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", dir+"/link.yaml"); err != nil {
		t.Fatal(err)
	}
	got, faults := cdispec.Read([]string{dir, dir + "/good.json"})
	if names(got) != "v.com/c=x" || len(faults) != 2 || !strings.HasSuffix(faults[1].String(), "pipe.yaml: not a regular file") {
		t.Errorf("devices %s, faults %v", names(got), faults)
	}
}
