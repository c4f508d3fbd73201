package effective

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

type files map[string]string

func (f files) ReadFile(path string) ([]byte, error) {
	text, ok := f[path]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return []byte(text + "\n"), nil
}

func TestReadCgroup(t *testing.T) {
	tests := []struct {
		name string
		v2   bool
		in   files
		want State
	}{
		{"v2", true, files{
			"a/b/cpuset.cpus.effective": "0-3", "a/b/cpuset.mems.effective": "0", "a/b/cpu.weight": "39",
			"a/b/cpu.max": "50000 100000", "a/b/memory.max": "1048576",
		}, State{CPUs: "0-3", Mems: "0", Shares: 39, V2: true, Quota: 50000, Period: 100000, Memory: 1 << 20}},
		{"v2 unlimited, cpuset controller without effective files", true, files{
			"a/b/cpuset.cpus": "1", "a/b/cpuset.mems": "", "a/b/cpu.weight": "1", "a/b/cpu.max": "max 100000", "a/b/memory.max": "max",
		}, State{CPUs: "1", Shares: 1, V2: true, Quota: -1, Period: 100000, Memory: -1}},
		{"v1", false, files{
			"cpuset/a/b/cpuset.cpus": "0,2", "cpuset/a/b/cpuset.mems": "0-1", "cpu/a/b/cpu.shares": "512",
			"cpu/a/b/cpu.cfs_quota_us": "-1", "cpu/a/b/cpu.cfs_period_us": "100000",
			"memory/a/b/memory.limit_in_bytes": "9223372036854771712",
		}, State{CPUs: "0,2", Mems: "0-1", Shares: 512, Quota: -1, Period: 100000, Memory: -1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ReadCgroup(tt.in, tt.v2, "a/b")
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
			for name, text := range tt.in {
				broken := files{}
				for k, v := range tt.in {
					broken[k] = v
				}
				broken[name] = "x y z"
				_, err := ReadCgroup(broken, tt.v2, "a/b")
				if !strings.Contains(name, "cpuset") && err == nil {
					t.Errorf("%s: %q was accepted in place of %q", name, broken[name], text)
				}
				delete(broken, name)
				if _, err := ReadCgroup(broken, tt.v2, "a/b"); err == nil {
					t.Errorf("%s is missing, want an error", name)
				}
			}
		})
	}
}

// TestWeight has the numbers of Kubernetes' KEP-2254 map.
func TestWeight(t *testing.T) {
	for shares, want := range map[uint64]uint64{
		0: 1, 2: 1, 1000: 39, 1024: 39, 2000: 77, 50000: 1908, 262144: 10000, 1 << 40: 10000,
	} {
		if got := Weight(shares); got != want {
			t.Errorf("%d shares: weight %d, want %d", shares, got, want)
		}
		if s := (State{V2: true, Shares: want}); !s.HasShares(shares) {
			t.Errorf("weight %d is not that of %d shares", want, shares)
		}
	}
	if (State{Shares: 1023}).HasShares(1024) {
		t.Error("version 1 shares are compared exactly")
	}
}

func TestPlannedState(t *testing.T) {
	spec := &specs.Spec{
		Process: &specs.Process{Env: []string{"A=1", "B=x=y", "C"}},
		Mounts:  []specs.Mount{{Destination: "/d", Source: "/s"}},
		Linux: &specs.Linux{
			Devices: []specs.LinuxDevice{{Path: "/dev/x"}},
			Resources: &specs.LinuxResources{
				CPU:    &specs.LinuxCPU{Shares: new(uint64(1024)), Quota: new(int64(-1)), Cpus: "3"},
				Memory: &specs.LinuxMemory{Limit: new(int64(5))},
			},
		},
	}
	got := PlannedState(spec, true)
	want := State{
		CPUs: "3", Shares: 39, V2: true, Quota: -1, Memory: 5,
		Env: map[string]string{"A": "1", "B": "x=y", "C": ""}, Mounts: map[string]string{"/d": "/s"}, Devices: []string{"/dev/x"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"B=x=y", "C="}, got.AddedEnv(map[string]string{"A": "1"})); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(State{Quota: -1, Memory: -1, Env: map[string]string{}, Mounts: map[string]string{}}, PlannedState(&specs.Spec{}, false)); d != "" {
		t.Error(d)
	}
}
