package hook

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// gpuShare returns a pod that requests a part of a GPU.
func gpuShare(in Input) *Input {
	in.Container = "a"
	if in.Pod == nil {
		in.Pod = &lifecycle.Pod{Namespace: "shop"}
	}
	p := intent.Pod{GPU: intent.Sourced[intent.GPU]{V: intent.GPU{
		Minors: []int{1}, UUIDs: []string{"GPU-aa"}, Share: &intent.GPUShare{Memory: 1 << 30},
	}, Key: intent.KoordDevices}}
	if in.Intent != nil {
		p.LibraryGrantedRule, p.OnlyGrantedRule = in.Intent.LibraryGrantedRule, in.Intent.OnlyGrantedRule
	}
	in.Intent = &p
	return &in
}

// TestMounts: a container cannot change a file of the host that any hook mounts, or it can neither execute
// what it writes there nor create devices.
func TestMounts(t *testing.T) {
	var out Output
	for _, h := range everyHook(t) {
		in := gpuShare(Input{})
		in.Intent.Mounts = podWide([]intent.HostMount{{Source: "/r", Destination: "/a"}, {Source: "/w", Destination: "/b", Writable: true}, {Source: "/etc", Destination: "/c"}})
		if h.Info().Name == "mounts" {
			h = MountsOptions{Allowed: []string{"/r"}, Writable: []string{"/w"}}
		}
		h.Propose(in, &out)
	}
	mounts := map[string][]string{}
	for _, v := range out.Values {
		if v.Field == lifecycle.MountPoint {
			mounts[v.Mount.Source+" at "+v.Mount.Destination] = v.Mount.Options
			if v.Key != v.Mount.Destination || v.Mount.Type != "bind" {
				t.Errorf("%+v", v)
			}
		}
	}
	want := map[string][]string{
		"/l.so at /l.so": {"bind", "ro", "nosuid", "nodev"},
		"/r at /a":       {"bind", "ro", "nosuid", "nodev"},
		"/w at /b":       {"bind", "rw", "nosuid", "nodev", "noexec"},
		"/var/lib/trimtab/hami/lock at /tmp/vgpulock": {"bind", "rw", "nosuid", "nodev", "noexec"},
	}
	if diff := cmp.Diff(want, mounts); diff != "" {
		t.Error(diff)
	}
	for _, h := range Catalogue() {
		if slices.Contains(h.Sets, lifecycle.MountPoint) != (h.Name == "gpu" || h.Name == "mounts") {
			t.Errorf("%s: a hook more that mounts, or one less: have it in this test", h.Name)
		}
	}
}

// TestOneMaker: only mount.go, which has the options, makes mounts.
func TestOneMaker(t *testing.T) {
	found := 0
	for _, dir := range []string{".", "../intent", "../engine", "../extend/hookserver", "../conductor"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(dir, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			set := token.NewFileSet()
			f, err := parser.ParseFile(set, file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				l, is := n.(*ast.CompositeLit)
				if !is {
					return true
				}
				if s, is := l.Type.(*ast.SelectorExpr); is && s.Sel.Name == "Mount" {
					if found++; filepath.Base(file) != "mount.go" {
						t.Errorf("%s makes a mount: let Output.mount make it", set.Position(l.Pos()))
					}
				}
				return true
			})
		}
	}
	if found != 1 {
		t.Errorf("%d places make mounts, want 1", found)
	}
}

// TestLibraryNeedsAGPU: without a rule that allows it, HAMi-core's files are given only to containers that
// have the GPU.
func TestLibraryNeedsAGPU(t *testing.T) {
	nodes := charNodes("/dev/nvidia0", "/dev/nvidia1")
	ids := func(id string) lifecycle.DeviceGrant {
		return lifecycle.DeviceGrant{IDs: map[string][]string{resourceGPU: {id}}}
	}
	node := func(path string) lifecycle.DeviceGrant {
		return lifecycle.DeviceGrant{Nodes: []lifecycle.Device{nodes[path]}}
	}
	onlyGranted := &intent.Pod{LibraryGrantedRule: "default"}
	for _, c := range []struct {
		name    string
		in      Input
		devices GPUDevices
		given   bool
	}{
		{"nothing was granted", Input{Intent: onlyGranted}, GPUByEnv, false},
		{"another GPU", Input{Intent: onlyGranted, GrantedDevices: ids("0")}, GPUByEnv, false},
		{"another GPU's node", Input{Intent: onlyGranted, RequestedDevices: node("/dev/nvidia0")}, GPUByEnv, false},
		{"a replica", Input{Intent: onlyGranted, GrantedDevices: ids("GPU-aa::0")}, GPUByEnv, false},
		{"its index", Input{Intent: onlyGranted, GrantedDevices: ids("1")}, GPUByEnv, true},
		{"its UUID", Input{Intent: onlyGranted, GrantedDevices: ids("GPU-aa")}, GPUByEnv, true},
		{"its node", Input{Intent: onlyGranted, RequestedDevices: node("/dev/nvidia1")}, GPUByEnv, true},
		{"handed over by us", Input{Intent: onlyGranted}, GPUByDeviceNode, true},
		{"not passed because no rule grants it", Input{Intent: &intent.Pod{LibraryGrantedRule: "default", OnlyGrantedRule: "default"}}, GPUByDeviceNode, false},
		{"a rule allows it", Input{}, GPUByEnv, true},
	} {
		var out Output
		GPU{HAMiLibrary: "/l.so", HAMiLock: "/d", Devices: c.devices, Nodes: nodes}.Propose(gpuShare(c.in), &out)
		given := slices.ContainsFunc(out.Values, func(v lifecycle.Value) bool {
			return v.Field == lifecycle.MountPoint || v.Key == "LD_PRELOAD"
		})
		told := slices.ContainsFunc(out.Problems, func(q lifecycle.Problem) bool {
			return q.Refused && strings.HasPrefix(q.Reason, "gpu-library: ")
		})
		if given != c.given || told == given {
			t.Errorf("%s: given %v, problems %v", c.name, given, out.Problems)
		}
	}
}

// TestNoLockDirectory: without its lock directory the library would wait forever, so it is not mounted.
func TestNoLockDirectory(t *testing.T) {
	var out Output
	GPU{HAMiLibrary: "/l.so", NoLockReason: "directory /d is a link"}.Propose(gpuShare(Input{}), &out)
	if len(out.Values) != 1 || len(out.Problems) != 1 || !strings.Contains(out.Problems[0].Reason, "directory /d is a link") {
		t.Errorf("%v, %v", out.Values, out.Problems)
	}
}
