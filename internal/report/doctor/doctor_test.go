package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/test/clock"
)

var update = flag.Bool("update", false, "rewrite what the fixtures want")

// A fixture is a node: files by their paths; NODES, with what a text file cannot express (socket, dir,
// link, mode, owner); AGENT, the answers of a running agent; and WANT, the report.
type fixture struct {
	archive *txtar.Archive
	root    string
	agent   []byte
	want    string
	owners  map[string]int
}

func load(t *testing.T, file string) *fixture {
	t.Helper()
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{archive: a, root: t.TempDir(), owners: map[string]int{}}
	var nodes string
	for _, part := range a.Files {
		switch part.Name {
		case "NODES":
			nodes = string(part.Data)
		case "AGENT":
			f.agent = part.Data
		case "WANT":
			f.want = string(part.Data)
		default:
			f.write(t, part.Name, part.Data)
		}
	}
	for line := range strings.Lines(nodes) {
		f.node(t, strings.Fields(line))
	}
	return f
}

func (f *fixture) at(t *testing.T, name string) string {
	t.Helper()
	p := filepath.Join(f.root, name)
	must(t, os.MkdirAll(filepath.Dir(p), 0o755))
	return p
}

func (f *fixture) write(t *testing.T, name string, data []byte) {
	t.Helper()
	p := f.at(t, name)
	must(t, os.WriteFile(p, data, 0o644))
	must(t, os.Chmod(p, 0o644))
}

func (f *fixture) node(t *testing.T, w []string) {
	t.Helper()
	p := f.at(t, w[1])
	switch w[0] {
	case "link":
		must(t, os.Symlink(w[2], p))
		return
	case "owner":
		f.owners[filepath.Base(p)], _ = strconv.Atoi(w[2])
		return
	case "key":
		must(t, os.WriteFile(p, bytes.Repeat([]byte{7}, keySize), 0o600))
	case "socket":
		must(t, syscall.Mknod(p, syscall.S_IFSOCK|0o600, 0))
	case "dir":
		must(t, os.MkdirAll(p, 0o755))
	}
	mode, err := strconv.ParseUint(w[2], 8, 32)
	must(t, err)
	must(t, os.Chmod(p, fs.FileMode(mode)))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) options() Options {
	return Options{
		HostRoot: f.root, KubeletRoot: "/var/lib/kubelet", ConfigFile: "/etc/trimtab/config.yaml",
		Ask: func(_ context.Context, socket string) (api.Node, error) {
			var n api.Node
			if f.agent == nil {
				return n, &status.UnreachableError{Path: socket, Hint: "nobody answers", Err: syscall.ECONNREFUSED}
			}
			return n, json.Unmarshal(f.agent, &n)
		},
		owner: func(i fs.FileInfo) (int, int) { return f.owners[i.Name()], 0 },
	}
}

// TestNodes compares doctor's report for every fixture.
func TestNodes(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	must(t, err)
	if len(files) < 8 {
		t.Fatalf("only %d fixtures", len(files))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			f := load(t, file)
			r := Run(t.Context(), f.options())
			var got bytes.Buffer
			must(t, Render(&got, withoutIdle(r)))
			if strings.Contains(got.String(), f.root) {
				t.Errorf("the report names our root, not the node's paths:\n%s", &got)
			}
			text := got.String()
			if *update {
				f.save(t, file, []byte(text))
				return
			}
			for _, h := range hook.Catalogue() {
				find(t, r, "hook "+h.Name)
			}
			if d := cmp.Diff(f.want, text); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			for _, c := range r.Checks {
				if c.Found == "" || c.Why == "" || (c.Do == "") != (c.Result == OK) {
					t.Errorf("half a check: %+v", c)
				}
			}
		})
	}
}

// withoutIdle removes disabled hooks, which all have the same text, so that a new hook changes neither a
// fixture nor the number of checks in its last line.
func withoutIdle(r Report) Report {
	r.Checks = slices.DeleteFunc(slices.Clone(r.Checks), func(c Check) bool {
		return strings.HasPrefix(c.Name, "hook ") && strings.HasPrefix(c.Found, "disabled (hooks.")
	})
	return r
}

func (f *fixture) save(t *testing.T, file string, got []byte) {
	t.Helper()
	kept := f.archive.Files[:0]
	for _, part := range f.archive.Files {
		if part.Name != "WANT" {
			kept = append(kept, part)
		}
	}
	f.archive.Files = append(kept, txtar.File{Name: "WANT", Data: got})
	must(t, os.WriteFile(file, txtar.Format(f.archive), 0o644))
}

// find returns one check of a report.
func find(t *testing.T, r Report, name string) Check {
	t.Helper()
	for _, c := range r.Checks {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no check %q", name)
	return Check{}
}

// TestWithoutPermission: a check of an unreadable file is unknown, neither a problem nor ok.
func TestWithoutPermission(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything; TestUnreadable shows the same by another error")
	}
	f := load(t, "testdata/good-v2-systemd.txtar")
	must(t, os.Chmod(filepath.Join(f.root, "etc/containerd"), 0))
	must(t, os.Chmod(filepath.Join(f.root, "var/lib/kubelet"), 0))
	t.Cleanup(func() {
		_ = os.Chmod(filepath.Join(f.root, "etc/containerd"), 0o755)
		_ = os.Chmod(filepath.Join(f.root, "var/lib/kubelet"), 0o755)
	})
	c := find(t, Run(t.Context(), f.options()), "kubelet cpu manager")
	if c.Result != Unknown || c.Do != rootAdvice {
		t.Errorf("%+v", c)
	}
}

// TestUnreadable puts a directory at the place of each file: root gets this error, too.
func TestUnreadable(t *testing.T) {
	for _, tc := range []struct{ file, check string }{
		{"etc/trimtab/config.yaml", "configuration"},
		{"var/lib/kubelet/config.yaml", "kubelet topology manager"},
		{"sys/fs/cgroup/cgroup.subtree_control", "hook cpuset"},
	} {
		t.Run(tc.check, func(t *testing.T) {
			f := load(t, "testdata/good-v2-systemd.txtar")
			p := filepath.Join(f.root, tc.file)
			must(t, os.RemoveAll(p))
			must(t, os.Mkdir(p, 0o755))
			if c := find(t, Run(t.Context(), f.options()), tc.check); c.Result != Unknown || !strings.Contains(c.Found, "is a directory") {
				t.Errorf("%+v", c)
			}
		})
	}
}

func TestDeniedAgent(t *testing.T) {
	f := load(t, "testdata/good-v2-systemd.txtar")
	o := f.options()
	o.Ask = func(context.Context, string) (api.Node, error) {
		return api.Node{}, &status.UnreachableError{Hint: "not allowed", Err: syscall.EACCES}
	}
	if c := find(t, Run(t.Context(), o), "agent"); c.Result != Unknown || c.Do != rootAdvice {
		t.Errorf("%+v", c)
	}
}

func TestEndpoint(t *testing.T) {
	f := load(t, "testdata/good-v2-systemd.txtar")
	o := f.options()
	o.Endpoint = "unix:///run/k3s/containerd.sock"
	if c := find(t, Run(t.Context(), o), "runtime"); c.Result != Problem || !strings.Contains(c.Found, "/run/k3s/containerd.sock") {
		t.Errorf("%+v", c)
	}
	f.node(t, []string{"socket", "run/k3s/containerd.sock", "660"})
	if c := find(t, Run(t.Context(), o), "runtime"); c.Result != OK || c.Found != "containerd at /run/k3s/containerd.sock" {
		t.Errorf("%+v", c)
	}
}

// TestAttachedWithoutSocket: in the chart's pod with attach: nri there is no CRI socket, and the agent's
// answer counts. A socket that the user names must exist.
func TestAttachedWithoutSocket(t *testing.T) {
	for _, tt := range []struct {
		state, endpoint string
		want            Result
	}{{"connected", "", OK}, {"connecting", "", Problem}, {"connected", "unix:///run/k3s/containerd.sock", Problem}} {
		f := load(t, "testdata/good-v2-systemd.txtar")
		o := f.options()
		if err := os.Remove(filepath.Join(o.HostRoot, containerdSocket)); err != nil {
			t.Fatal(err)
		}
		o.Endpoint = tt.endpoint
		o.Ask = func(context.Context, string) (api.Node, error) {
			return api.Node{Attachments: []api.Attachment{{Name: "nri", State: tt.state, Runtime: "containerd v2.4.2"}}}, nil
		}
		c := find(t, Run(t.Context(), o), "runtime")
		if c.Result != tt.want || tt.want == OK && !strings.Contains(c.Found, "containerd v2.4.2") {
			t.Errorf("%s, %q: %+v", tt.state, tt.endpoint, c)
		}
	}
}

// TestThisMachine: on any machine, doctor gives an answer to every check, without root and without changing
// anything.
func TestThisMachine(t *testing.T) {
	o := (&fixture{}).options()
	o.HostRoot, o.owner = "/", nil
	r := Run(t.Context(), o)
	for _, c := range r.Checks {
		if c.Result != OK && c.Result != Problem && c.Result != Unknown || c.Found == "" {
			t.Errorf("%+v", c)
		}
	}
}

func TestLinksStayInside(t *testing.T) {
	root := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(root, "run/a"), 0o755))
	must(t, os.MkdirAll(filepath.Join(root, "var"), 0o755))
	must(t, os.Symlink("/run", filepath.Join(root, "var/run")))
	must(t, os.Symlink("../../../../../../etc", filepath.Join(root, "out")))
	must(t, os.Symlink("loop", filepath.Join(root, "loop")))
	h := host{root: root}
	for in, want := range map[string]string{
		"/var/run/a": "/run/a", "/out/passwd": "/etc/passwd", "/var/../run": "/run", "/none/../x": "/x",
	} {
		if got, err := h.realPath(in); err != nil || got != filepath.Join(root, want) {
			t.Errorf("real(%s) = %s, %v; want %s", in, got, err, want)
		}
	}
	if _, err := h.realPath("/loop"); err == nil {
		t.Error("a loop has an end")
	}
}

func TestTOML(t *testing.T) {
	const text = `version = 3 # shape
imports = [
  "/etc/a/*.toml", # first
  'b.toml',
]
root = "a#b"
[plugins]
  [plugins.'io.containerd.nri.v1.nri']
    disable = false
    socket_path = '/run/nri.sock'
  [plugins."x.y"] # comment
    inline = { a = 1, "b.c" = { d = "e,f" } }
    z.q = true
    text = """
not = a key
"""
[[list]]
  k = "v"
nonsense
= 3
`
	var got []string
	all, err := parseTOML("f", text)
	if err == nil {
		t.Error("the line of nonsense is no error")
	}
	for _, s := range all {
		got = append(got, fmt.Sprintf("%d %s|%s|%s|%s", s.line, strings.Join(s.table, "/"), s.key, s.value, strings.Join(s.values, " ")))
	}
	want := []string{
		"1 |version|3|",
		"2 |imports||/etc/a/*.toml b.toml",
		"6 |root|a#b|",
		"9 plugins/io.containerd.nri.v1.nri|disable|false|",
		"10 plugins/io.containerd.nri.v1.nri|socket_path|/run/nri.sock|",
		"12 plugins/x.y/inline|a|1|",
		"12 plugins/x.y/inline/b.c|d|e,f|",
		"13 plugins/x.y/z|q|true|",
		"14 plugins/x.y|text|not = a key\n|",
		"18 list|k|v|",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func FuzzTOML(f *testing.F) {
	f.Add("a = [\n1,\n")
	f.Add("[x.'y.z']\nk = { a = \"b\n")
	f.Add("=\n[[\n'''\n")
	for _, part := range []string{"[", "a = [\n", "[a.b.'c']\nk = { a = \"b\", c = [1, \"d\"] }\n", "'''\n", "a.b.c = 1\n", "\"\\", "k = {a=", "a."} {
		f.Add(strings.Repeat(part, 200_000/len(part)))
	}
	f.Add("k = " + strings.Repeat("{a=", 60_000))
	f.Add("[" + strings.Repeat("a.", 60_000) + "b]\n" + strings.Repeat("k = 1\n", 20_000))
	f.Fuzz(func(t *testing.T, text string) {
		defer clock.Watch(t, len(text))()
		all, _ := parseTOML("f", text)
		for _, s := range all {
			if len(s.table) >= maxKeyParts || s.line < 1 {
				t.Errorf("%+v", s)
			}
		}
	})
}

// TestHooksThatNeedMore: files that not every kernel has, and devices.
func TestHooksThatNeedMore(t *testing.T) {
	for _, tc := range []struct {
		name, hooks, file, check string
		want                     Result
		found                    string
	}{
		{"identity, no kernel", "groupIdentity: {enabled: true}", "", "hook groupIdentity", Problem, "this kernel has no cpu.bvt_warp_ns"},
		{"identity, the kernel", "groupIdentity: {enabled: true}", "sys/fs/cgroup/kubepods.slice/cpu.bvt_warp_ns", "hook groupIdentity", OK, "effective"},
		{"identity, a stand-in", "groupIdentity: {enabled: true, fallback: idle}", "sys/fs/cgroup/kubepods.slice/cpu.idle", "hook groupIdentity", OK, "effective"},
		{"identity, by weight", "groupIdentity: {enabled: true, fallback: weight}", "", "hook groupIdentity", OK, "effective"},
		{"no card", "rdma: {enabled: true}", "", "hook rdma", Problem, "/dev/infiniband/rdma_cm"},
		{"a card", "rdma: {enabled: true}", "dev/infiniband/rdma_cm", "hook rdma", OK, "effective"},
		{"no GPU", "gpu: {devices: nodes}", "", "hook gpu", Problem, "/dev/nvidiactl"},
		{"GPUs by the runtime", "gpu: {devices: env}", "", "hook gpu", OK, "effective"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := load(t, "testdata/good-v2-systemd.txtar")
			f.write(t, "etc/trimtab/config.yaml", []byte("apiVersion: trimtab.io/v1alpha1\nkind: Config\nhooks: {"+tc.hooks+"}\n"))
			if tc.file != "" {
				f.write(t, tc.file, nil)
			}
			if c := find(t, Run(t.Context(), f.options()), tc.check); c.Result != tc.want || !strings.Contains(c.Found, tc.found) {
				t.Errorf("%+v", c)
			}
		})
	}
}
