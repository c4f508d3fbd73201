package hook

import (
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"pgregory.net/rapid"
)

func batchPod(m map[string]intent.Batch) *intent.Pod {
	return &intent.Pod{
		Class: intent.Sourced[intent.Class]{V: intent.Reclaimed, Key: intent.KoordQoSClass},
		Batch: intent.Sourced[map[string]intent.Batch]{V: m, Key: intent.KoordExtended},
	}
}

// values runs hooks and returns the values that they set, as text by field.
func values(in *Input, hooks ...Hook) map[string]string {
	var out Output
	for _, h := range hooks {
		h.Propose(in, &out)
	}
	got := map[string]string{}
	for _, v := range out.Values {
		name := v.Field.String()
		if v.Key != "" {
			name += " " + v.Key
		}
		got[name] = v.String()
	}
	return got
}

// TestBatchPod is the batch table of Koordinator 1.7: the pod's values are the
// sums over its containers.
func TestBatchPod(t *testing.T) {
	half := intent.Batch{RequestCPU: 500, LimitCPU: 500, LimitMemory: 2 << 30}
	for _, c := range []struct {
		name                  string
		ask                   map[string]intent.Batch
		shares, quota, memory string
	}{
		{"one container 500m, 2Gi", map[string]intent.Batch{"a": half}, "512", "50000", "2147483648"},
		{"and one with limits alone", map[string]intent.Batch{"a": half, "b": {LimitCPU: 1000, LimitMemory: 2 << 30}}, "512", "150000", "4294967296"},
		{"requests alone", map[string]intent.Batch{"a": {RequestCPU: 500}}, "512", "-1", "-1"},
		{"two, one without limits", map[string]intent.Batch{"a": half, "b": {RequestCPU: 500}}, "1024", "-1", "-1"},
	} {
		want := map[string]string{"cpu.shares": c.shares, "cpu.quota": c.quota, "memory.limit": c.memory}
		if diff := cmp.Diff(want, values(&Input{Intent: batchPod(c.ask)}, BatchOptions{})); diff != "" {
			t.Error(c.name, diff)
		}
	}
}

func TestBatchUntouched(t *testing.T) {
	half := map[string]intent.Batch{"a": {RequestCPU: 500}}
	notBE := batchPod(half)
	notBE.Class.V = intent.Shared
	silent := &intent.Pod{Class: intent.Sourced[intent.Class]{V: intent.Reclaimed, Key: intent.KoordQoSClass}}
	for name, in := range map[string]*Input{
		"not BE":            {Intent: notBE, Container: "a"},
		"no spec":           {Intent: silent, Container: "a"},
		"another container": {Intent: batchPod(half), Container: "b"},
	} {
		if got := values(in, BatchOptions{}); len(got) > 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestQuotaFormula(t *testing.T) {
	for milli, want := range map[int64]int64{0: -1, -1: -1, 1: 1000, 10: 1000, 500: 50000, 1000: 100000, 1 << 62: -1} {
		if got := quotaOfMilli(milli, defaultPeriod); got != want {
			t.Errorf("quota(%d) = %d, want %d", milli, got, want)
		}
	}
	if got := quotaOfMilli(500, 10000); got != 5000 {
		t.Errorf("half a CPU in 10 ms is %d µs, want 5000", got)
	}
	for milli, want := range map[int64]int64{0: 2, -5: 2, 1: 2, 500: 512, 1000: 1024, 256000: 262144, 1 << 62: 262144} {
		if got := sharesOfMilli(milli); got != want {
			t.Errorf("shares(%d) = %d, want %d", milli, got, want)
		}
	}
}

func TestCPUSet(t *testing.T) {
	own := &Input{Intent: &intent.Pod{}, Container: "a", CPUs: "2-3", Pool: placement.Exclusive}
	says := func(unset bool) *Input {
		in := *own
		in.Intent = &intent.Pod{UnsetQuota: intent.Sourced[bool]{V: unset, Key: intent.TrimtabUnsetQuota}}
		return &in
	}
	for _, c := range []struct {
		name string
		in   *Input
		hook CPUSetOptions
		want map[string]string
	}{
		{"owned", own, CPUSetOptions{UnsetQuota: true}, map[string]string{"cpuset.cpus": "2-3", "cpu.quota": "-1"}},
		{"owned, quota kept", own, CPUSetOptions{}, map[string]string{"cpuset.cpus": "2-3"}},
		{"owned, the pod keeps its quota", says(false), CPUSetOptions{UnsetQuota: true}, map[string]string{"cpuset.cpus": "2-3"}},
		{"owned, the pod has it lifted", says(true), CPUSetOptions{}, map[string]string{"cpuset.cpus": "2-3", "cpu.quota": "-1"}},
		{"shared", &Input{Intent: &intent.Pod{}, Container: "a", CPUs: "0-1"}, CPUSetOptions{UnsetQuota: true}, map[string]string{"cpuset.cpus": "0-1"}},
		{"pod", &Input{Intent: &intent.Pod{}, Pool: placement.Exclusive}, CPUSetOptions{UnsetQuota: true}, map[string]string{"cpu.quota": "-1"}},
	} {
		if diff := cmp.Diff(c.want, values(c.in, c.hook)); diff != "" {
			t.Error(c.name, diff)
		}
	}
}

// TestGPU is the GPU table of Koordinator 1.7.
func TestGPU(t *testing.T) {
	in := func(g intent.GPU) *Input {
		return &Input{Container: "a", Intent: &intent.Pod{GPU: intent.Sourced[intent.GPU]{V: g, Key: intent.KoordDevices}}}
	}
	share := intent.GPU{Minors: []int{1}, Share: &intent.GPUShare{Memory: 17179869184, Core: 50}}
	if diff := cmp.Diff(map[string]string{"env NVIDIA_VISIBLE_DEVICES": "0,1"}, values(in(intent.GPU{Minors: []int{0, 1}}), GPU{})); diff != "" {
		t.Error(diff)
	}
	want := map[string]string{
		"env NVIDIA_VISIBLE_DEVICES": "1", "env CUDA_DEVICE_MEMORY_LIMIT": "17179869184", "env CUDA_DEVICE_SM_LIMIT": "50",
		"env LD_PRELOAD":      "/usr/local/vgpu/libvgpu.so",
		"mount /tmp/vgpulock": "/var/lib/trimtab/hami/lock -> /tmp/vgpulock", "mount /usr/local/vgpu/libvgpu.so": "/usr/local/vgpu/libvgpu.so -> /usr/local/vgpu/libvgpu.so",
	}
	if diff := cmp.Diff(want, values(in(share), GPU{HAMiLibrary: "/usr/local/vgpu/libvgpu.so", HAMiLock: "/var/lib/trimtab/hami/lock"})); diff != "" {
		t.Error(diff)
	}
	var out Output
	GPU{}.Propose(in(share), &out)
	if len(out.Problems) != 1 || len(out.Values) != 1 {
		t.Errorf("without a library: %v, %v", out.Values, out.Problems)
	}
}

// everyHook lists all hooks so that each sets as much as possible. Hooks that need a device of the test's
// node are listed here; all others are made from their declarations.
func everyHook(t *testing.T) []Hook {
	t.Helper()
	nodes := charNodes("/dev/nvidia1", "/dev/nvidiactl", "/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0")
	hooks := []Hook{
		CPUSetOptions{UnsetQuota: true}, BatchOptions{}, Normalization{Ratio: 120},
		GroupIdentity{BE: -1, Fallback: YieldWeight, KernelSupport: lifecycle.NotSupported},
		GPU{HAMiLibrary: "/l.so", HAMiLock: "/var/lib/trimtab/hami/lock", Devices: GPUByDeviceNode, Nodes: nodes}, OOMScoreOptions{},
		RDMA{Host: lifecycle.Host{Devices: nodes, Verbs: map[string]string{"0000:3b:00.0": "uverbs0"}}},
		Hugepages{Sizes: []string{"2MB", "1GB"}},
		BlockIO{WeightFile: ioWeightFile, PodWide: true, Disks: map[string]string{"sda": "8:0"}, Weights: ByClass[int]{LSR: 1000, LS: 500, BE: 10}, Classes: ByClass[string]{BE: "slow"}},
		RDT{Shares: ByClass[string]{BE: "L3 0-30"}, Measure: true}, CoreSched{},
		Preemption{Yield: YieldIdle, MemoryHigh: 80, MemoryLow: 50, MemoryMin: 10, KillTogether: true}, Burst{}, Partition{},
		MemoryQoS{SwapPercent: map[string]int{"c": 20}, Files: MemoryQoSFiles()},
		CPUEnv{Defaults: []intent.CPUVariable{{Name: "A", List: true}, {Name: "B"}}},
	}
	o := declared(t)
	for _, s := range o.sections() {
		if slices.ContainsFunc(hooks, func(h Hook) bool { return h.Info().Name == s.key }) {
			continue
		}
		h, err := s.hook(allFeaturesNode{}, o)
		if err != nil {
			t.Fatal(s.key, err)
		}
		hooks = append(hooks, h)
	}
	return hooks
}

// declared returns the defaults that the tags of Options declare, with every switch on.
func declared(t *testing.T) *Options {
	t.Helper()
	o := new(Options)
	for _, section := range reflect.ValueOf(o).Elem().Fields() {
		for f, v := range section.Fields() {
			text := f.Tag.Get("default")
			switch v.Kind() {
			case reflect.Bool:
				v.SetBool(true)
			case reflect.String:
				v.SetString(text)
			case reflect.Int:
				n, _ := strconv.Atoi(text) // 0 without a default
				v.SetInt(int64(n))
			default: // a list: a hook with one is listed above
			}
		}
	}
	return o
}

// TestDeclared: a hook that no test names is checked with its defaults and every switch on.
func TestDeclared(t *testing.T) {
	o := declared(t)
	if !o.RDT.Measure || o.RDT.BECache != "0-30" || o.RDT.BEBandwidth != 100 {
		t.Errorf("%+v", o.RDT)
	}
	hooks := everyHook(t)
	for _, h := range Catalogue() {
		if !slices.ContainsFunc(hooks, func(o Hook) bool { return o.Info().Name == h.Name }) {
			t.Errorf("%s is not checked for conflicts", h.Name)
		}
	}
}

// TestSections: each field of Options makes the hook that has its key.
func TestSections(t *testing.T) {
	for _, s := range new(Options).sections() {
		if h, err := s.hook(allFeaturesNode{}, new(Options)); h == nil && err == nil {
			t.Errorf("hooks.%s makes no hook", s.key)
		} else if name := s.info().Name; name != s.key {
			t.Errorf("hooks.%s makes the hook %s", s.key, name)
		}
	}
}

// TestNoConflict checks the composition rules of the hook list: for any request, no two hooks set the same
// value, and each sets only the fields that it declares.
func TestNoConflict(t *testing.T) {
	hooks := everyHook(t)
	rapid.Check(t, func(t *rapid.T) {
		in := &Input{
			Pod: &lifecycle.Pod{UID: "4f1c"}, Pristine: &lifecycle.Resources{},
			Container: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "container"),
			CPUs:      rapid.SampledFrom([]string{"", "0-3"}).Draw(t, "cpus"),
			Pool:      placement.PoolKind(rapid.IntRange(0, int(placement.Exclusive)).Draw(t, "pool")),
			Scheduling: lifecycle.SchedulingClass{
				Name: rapid.SampledFrom([]string{"", "c"}).Draw(t, "scheduling class"), Scheduler: "SCHED_IDLE", IOPriority: "IOPRIO_CLASS_IDLE 0",
			},
			ExclusiveCPUs: rapid.SampledFrom([]string{"", "0-3"}).Draw(t, "alone"),
			Intent:        batchPod(map[string]intent.Batch{"a": {RequestCPU: 1, LimitCPU: rapid.Int64().Draw(t, "cpu"), LimitMemory: rapid.Int64().Draw(t, "memory")}}),
		}
		in.Intent.Class.V = intent.Class(rapid.IntRange(0, int(intent.Reclaimed)).Draw(t, "class"))
		if rapid.Bool().Draw(t, "no batch") {
			in.Intent.Batch.Key = ""
		}
		in.Intent.GPU = intent.Sourced[intent.GPU]{V: intent.GPU{Minors: []int{1}, Share: &intent.GPUShare{}}, Key: "k"}
		in.Intent.RDMA = intent.Sourced[[]string]{V: []string{"0000:3b:00.0"}, Key: "k"}
		in.Intent.Hugepages = intent.Sourced[intent.Hugepages]{V: intent.Hugepages{Limits: map[string]map[string]int64{"a": {"2MB": 0, "1GB": 0}}}, Key: "k"}
		in.Intent.Disks = intent.Sourced[[]intent.DiskLimit]{V: []intent.DiskLimit{{Disk: "sda", ReadBPS: 1, WriteBPS: 2, ReadIOPS: 3, WriteIOPS: 4}}, Key: "k"}
		if rapid.Bool().Draw(t, "own shares") {
			in.Intent.RDT = intent.Sourced[intent.RDTShares]{V: "L3 0-40", Key: "k"}
		}
		if rapid.Bool().Draw(t, "classes of the runtime") {
			in.Intent.RDTClass = intent.Sourced[string]{V: "gold", Key: "k"}
			in.Intent.BlockIOClass = in.Intent.RDTClass
		}
		in.Intent.Preemptable = intent.Sourced[bool]{V: rapid.Bool().Draw(t, "preemptable"), Key: "k"}
		in.Intent.Burst = intent.Sourced[int64]{V: 5, Key: "k"}
		in.Intent.CPUEnv = intent.Sourced[intent.CPUVariables]{V: intent.CPUVariables{Defaults: true}, Key: "k"}
		if rapid.Bool().Draw(t, "created") {
			in.Creation = &Creation{OwnedCPUs: in.CPUs, CPUs: 4}
		}
		in.Pristine.Memory.Limit = lifecycle.Some(rapid.Int64().Draw(t, "limit"))
		if rapid.Bool().Draw(t, "memory class") {
			in.Intent.MemoryClass = podWide("c")
		}
		in.Intent.SwapMax = podWide(intent.MemoryBytes(4096))
		in.Intent.OOMScore = intent.Sourced[int64]{V: 5, Key: "k"}
		askProcess(in.Intent)
		by := map[string]string{}
		var all []lifecycle.Value
		for _, h := range hooks {
			var out Output
			had := 0
			if _, after := h.(AfterOthersHook); after {
				out.Values, had = slices.Clone(all), len(all)
			}
			h.Propose(in, &out)
			out.Values = out.Values[had:]
			all = append(all, out.Values...)
			info := h.Info()
			for _, s := range out.Scales {
				if s.Field.Info().Compose != lifecycle.SetThenScaled || s.Why.Hook != info.Name || !slices.Contains(info.Sets, s.Field) {
					t.Errorf("%s scales %s", info.Name, s.Field)
				}
			}
			for _, v := range out.Values {
				name := v.Field.String() + " " + v.Key
				if other, twice := by[name]; twice {
					t.Errorf("%s and %s both set %s", other, info.Name, name)
				}
				by[name] = info.Name
				states := info.Sets
				if in.Container == "" {
					states = info.SetsOnPod
				}
				if !slices.Contains(states, v.Field) {
					t.Errorf("%s sets %s, which it does not state", info.Name, v.Field)
				}
				if v.Why.Hook != info.Name {
					t.Errorf("%s sets %s in the name of %q", info.Name, v.Field, v.Why.Hook)
				}
				if v.Field == lifecycle.CPUQuota && v.Int != -1 && v.Int < minQuota {
					t.Errorf("quota %d is refused by the kernel", v.Int)
				}
			}
		}
	})
}
