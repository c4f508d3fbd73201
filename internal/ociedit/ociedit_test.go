package ociedit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/test/clock"
)

const before = `{"ociVersion":"1.2.0","process":{"args":["a"],"env":["PATH=/bin","HOME=/"],"rlimits":[{"type":"RLIMIT_NOFILE","hard":10,"soft":10}],"later":18446744073709551615},
"mounts":[{"destination":"/proc","type":"proc","source":"proc"},{"destination":"/old","source":"/x"}],"annotations":{"keep":"1","drop":"2"},
"linux":{"resources":{"memory":{"limit":5,"swap":7}},"namespaces":[{"type":"network","path":"/n"},{"type":"pid"}]}}`

const after = `{"ociVersion":"1.2.0","process":{"args":["b","c"],"env":["PATH=/usr/bin","NEW=1"],"rlimits":[{"type":"RLIMIT_NOFILE","hard":20,"soft":15},{"type":"RLIMIT_CORE","hard":0,"soft":0}],
"later":18446744073709551615,"ioPriority":{"class":"IOPRIO_CLASS_BE","priority":4},"scheduler":{"policy":"SCHED_BATCH","nice":3},"oomScoreAdj":-5},
"mounts":[{"destination":"/proc","type":"proc","source":"proc","options":["ro"]},{"destination":"/new","type":"bind","source":"/y","options":["rbind"]}],"annotations":{"keep":"1","add":"3"},
"hooks":{"createRuntime":[{"path":"/bin/h","args":["h"],"timeout":2}]},
"linux":{"resources":{"memory":{"limit":5,"swap":9},"pids":{"limit":3},"devices":[{"allow":true,"type":"c","major":1,"minor":3,"access":"rw"},{"allow":false,"access":"m"}]},
"namespaces":[{"type":"network","path":"/m"},{"type":"pid"},{"type":"ipc"}],"devices":[{"path":"/dev/n","type":"c","major":1,"minor":3}],"sysctl":{"net.a":"1"},
"netDevices":{"eth5":{"name":"e0"}},"memoryPolicy":{"mode":"MPOL_BIND","nodes":"0"},"intelRdt":{"closID":"gold"},"seccomp":{"defaultAction":"SCMP_ACT_ALLOW"}}}`

func decision() Decision {
	three, five := "3", -5
	return Decision{
		Version: DecisionVersion, ID: "c1", Args: []string{"b", "c"},
		Env:     []Env{{Name: "PATH", Value: "/usr/bin"}, {Name: "HOME", Remove: true}, {Name: "NEW", Value: "1"}, {Name: "NONE", Remove: true}},
		Mounts:  []Mount{{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"ro"}}, {Destination: "/old", Remove: true}, {Destination: "/new", Type: "bind", Source: "/y", Options: []string{"rbind"}}},
		Devices: []Device{{Path: "/dev/n", Type: "c", Major: 1, Minor: 3, Access: "rw"}, {Path: "/dev/gone", Remove: true}}, DeviceRules: []DeviceRule{{Access: "m"}},
		Rlimits: []Rlimit{{Type: "RLIMIT_NOFILE", Hard: 20, Soft: 15}, {Type: "RLIMIT_CORE"}}, Hooks: map[string][]Hook{"createRuntime": {{Path: "/bin/h", Args: []string{"h"}, Timeout: 2}}},
		Annotations: map[string]*string{"add": &three, "drop": nil}, Sysctl: map[string]string{"net.a": "1"}, Namespaces: []Namespace{{Type: "network", Path: "/m"}, {Type: "ipc"}},
		NetDevices: map[string]string{"eth5": "e0"}, IOPriority: &IOPriority{Class: "IOPRIO_CLASS_BE", Priority: 4}, Scheduler: &Scheduler{Policy: "SCHED_BATCH", Nice: 3},
		MemoryPolicy: &MemoryPolicy{Mode: "MPOL_BIND", Nodes: "0"}, RDT: &RDT{ClosID: "gold"}, OOMScoreAdj: &five,
		Seccomp: json.RawMessage(`{"defaultAction":"SCMP_ACT_ALLOW"}`), Resources: json.RawMessage(`{"memory":{"swap":9},"pids":{"limit":3}}`),
	}
}

func bundleOf(t *testing.T, config string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, configName), []byte(config), 0o640); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestEdit: each field of a decision takes effect through a file, and everything else stays.
func TestEdit(t *testing.T) {
	dir, bundle := filepath.Join(t.TempDir(), "d"), bundleOf(t, before)
	if err := WriteDecision(dir, decision()); err != nil {
		t.Fatal(err)
	}
	d, err := ReadDecision(dir, "c1")
	if err == nil {
		err = EditBundle(bundle, &d)
	}
	if err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(filepath.Join(bundle, configName))
	have, err := parseObject(text)
	if err != nil {
		t.Fatal(err)
	}
	want, err := parseObject([]byte(after))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
	if info, _ := os.Stat(filepath.Join(bundle, configName)); info.Mode().Perm() != 0o640 {
		t.Errorf("its mode became %v", info.Mode())
	}
	if left, _ := os.ReadDir(bundle); len(left) != 1 {
		t.Errorf("the bundle has %v", left)
	}
	if d.Empty() || !(&Decision{Version: DecisionVersion, ID: "x"}).Empty() {
		t.Error("Empty is wrong")
	}
	if err := errors.Join(RemoveDecision(dir, "c1"), RemoveDecision(dir, "c1")); err != nil {
		t.Error(err)
	}
	if _, err := ReadDecision(dir, "c1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed decision: %v", err)
	}
}

// TestRefusals: files that other users could have written, and malformed ones, are refused and change
// nothing.
func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	d := decision()
	if err := WriteDecision(dir, d); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "c1.json")
	for _, c := range []struct {
		what string
		do   func() error
		want string
	}{
		{"an open directory", func() error { return os.Chmod(dir, 0o777) }, "lets other users write"},
		{"an open file", func() error { return errors.Join(os.Chmod(dir, 0o700), os.Chmod(file, 0o666)) }, "lets other users write"},
		{"another id", func() error { return os.WriteFile(file, []byte(`{"version":1,"id":"c2"}`), 0o600) }, "names container c2"},
		{"another version", func() error { return os.WriteFile(file, []byte(`{"version":2,"id":"c1"}`), 0o600) }, "the version of the decision is 2"},
		{"no JSON", func() error { return os.WriteFile(file, []byte(`{`), 0o600) }, "unexpected end"},
		{"a long file", func() error { return os.WriteFile(file, make([]byte, maxFile+1), 0o600) }, "more than"},
		{"a link", func() error { return errors.Join(os.Rename(file, file+"x"), os.Symlink("c1.jsonx", file)) }, "not a regular file"},
		{"a directory", func() error { return errors.Join(os.Remove(file), os.Mkdir(file, 0o700)) }, "not a regular file"},
	} {
		if err := c.do(); err != nil {
			t.Fatal(err)
		}
		_ = os.Chmod(file, map[bool]os.FileMode{true: 0o666, false: 0o600}[c.what == "an open file"])
		if _, err := ReadDecision(dir, "c1"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	for _, id := range []string{"", "..", "a/b", "a b", strings.Repeat("x", 201)} {
		if _, err := ReadDecision(dir, id); err == nil {
			t.Errorf("id %q was read", id)
		}
	}
	out := filepath.Join(t.TempDir(), "out.json")
	if err := os.WriteFile(out, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	linked := t.TempDir()
	if err := os.Symlink(out, filepath.Join(linked, configName)); err != nil {
		t.Fatal(err)
	}
	if err := EditBundle(linked, &d); err == nil {
		t.Error("a link out of the bundle was followed")
	}
	if text, _ := os.ReadFile(out); string(text) != before {
		t.Error("the link's target was changed")
	}
	for _, config := range []string{"null", "[]", `{"process":3}`, `{"mounts":{}}`, ""} {
		if err := EditBundle(bundleOf(t, config), &d); err == nil {
			t.Errorf("%q was edited", config)
		}
	}
}

// TestCheck: a malformed decision is not written.
func TestCheck(t *testing.T) {
	for _, d := range []Decision{
		{ID: "a/b"}, {ID: "c", Env: []Env{{Name: "A=B"}}}, {ID: "c", Mounts: []Mount{{Destination: "x"}}}, {ID: "c", Devices: []Device{{Path: "/dev/x", Type: "z"}}},
		{ID: "c", Rlimits: []Rlimit{{Type: "RLIMIT_CORE", Soft: 2, Hard: 1}}}, {ID: "c", Hooks: map[string][]Hook{"never": {{Path: "/x"}}}}, {ID: "c", Resources: json.RawMessage("{")},
	} {
		if err := WriteDecision(t.TempDir(), d); err == nil {
			t.Errorf("%+v was written", d)
		}
	}
}

// TestResult: the result of a decision is known until the container is removed.
func TestResult(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "oci")
	if err := ReadResult(dir, "c1"); err != nil {
		t.Errorf("without a directory: %v", err)
	}
	if _, err := DecisionIDs(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a directory: %v", err)
	}
	if err := WriteDecision(dir, Decision{ID: "c1"}); err != nil {
		t.Fatal(err)
	}
	if err := ReadResult(dir, "c1"); !errors.Is(err, ErrNotRead) {
		t.Errorf("before the wrapper: %v", err)
	}
	for _, result := range []error{errors.New("no room"), nil} {
		if err := WriteResult(dir, "c1", result); err != nil {
			t.Fatal(err)
		}
		if err := ReadResult(dir, "c1"); fmt.Sprint(err) != fmt.Sprint(result) {
			t.Errorf("result %v, want %v", err, result)
		}
	}
	if ids, err := DecisionIDs(dir); err != nil || !slices.Equal(ids, []string{"c1"}) {
		t.Errorf("ids %v, %v", ids, err)
	}
	if err := RemoveDecision(dir, "c1"); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := errors.Join(WriteResult(dir, "a/b", nil), ReadResult(dir, "..")); err == nil || !strings.Contains(err.Error(), `".."`) || !strings.Contains(err.Error(), `"a/b"`) {
		t.Errorf("ids that are none: %v", err)
	}
}

// FuzzEdit: any decision on any config.json gives JSON or an error.
func FuzzEdit(f *testing.F) {
	text, _ := json.Marshal(decision())
	f.Add([]byte(before), text)
	f.Add([]byte(`{"process":{"env":[1,null]},"linux":null}`), []byte(`{"env":[{"name":"A"}],"devices":[{"path":"/x"}],"resources":{"a":{}}}`))
	f.Fuzz(func(t *testing.T, config, decided []byte) {
		defer clock.Watch(t, len(config)+len(decided))()
		var d Decision
		if json.Unmarshal(decided, &d) != nil {
			return
		}
		if out, err := EditConfig(config, &d); err == nil && !json.Valid(out) {
			t.Errorf("%q is no JSON", out)
		}
	})
}
