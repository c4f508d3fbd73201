package intent

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/test/clock"
	"github.com/trimtab/trimtab/test/hostile"
)

func pod(labels, annotations map[string]string) *lifecycle.Pod {
	return &lifecycle.Pod{Labels: labels, Annotations: annotations, CgroupParent: "/kubepods/besteffort/podx"}
}

func read(labels, annotations map[string]string) *Pod {
	return Read(pod(labels, annotations), nil, Dialects())
}

func TestClasses(t *testing.T) {
	for name, want := range map[string]Class{
		"LSE": Dedicated, "LSR": Dedicated, "LS": Shared, "BE": Reclaimed, "SYSTEM": System, "": None, "ls": None, "Gold": None,
	} {
		got := read(map[string]string{KoordQoSClass: name}, nil)
		if got.Class.V != want {
			t.Errorf("%q is read as %s, want %s", name, got.Class.V, want)
		}
		if reported := len(got.Problems) > 0; reported != (want == None && name != "") {
			t.Errorf("%q: problems %v", name, got.Problems)
		}
	}
}

func TestQoSOf(t *testing.T) {
	for parent, want := range map[string]QoS{
		"/kubepods/besteffort/pod1": BestEffort, "kubepods-besteffort-pod1.slice": BestEffort,
		"/kubepods/burstable/pod1": Burstable, "kubepods-burstable-pod1.slice": Burstable,
		"/kubepods/pod1": Guaranteed, "kubepods-pod1.slice": Guaranteed, "": UnknownQoS,
	} {
		if got := qosOf(parent, nil); got != want {
			t.Errorf("%s: %s, want %s", parent, got, want)
		}
	}
	if got := qosOf("", &lifecycle.PodSpec{QoS: "Burstable"}); got != Burstable {
		t.Errorf("without a cgroup parent, by the spec: %s", got)
	}
}

func TestResourceStatus(t *testing.T) {
	for _, c := range []struct {
		name, text string
		cpus       []int
		nodes      []int
		problem    string
	}{
		{name: "cpuset", text: `{"cpuset":"2-3,18-19"}`, cpus: []int{2, 3, 18, 19}},
		{name: "NUMA nodes with cpu", text: `{"numaNodeResources":[{"node":1,"resources":{"cpu":"2"}}]}`, nodes: []int{1}},
		{name: "NUMA nodes with batch-cpu", text: `{"numaNodeResources":[{"node":1,"resources":{"kubernetes.io/batch-cpu":"2000"}}]}`, nodes: []int{1}},
		{name: "NUMA nodes without cpu", text: `{"numaNodeResources":[{"node":1,"resources":{"hugepages-2Mi":"2Gi"}}]}`},
		{name: "NUMA node with no cpu", text: `{"numaNodeResources":[{"node":1,"resources":{"cpu":"0"}}]}`},
		{name: "unknown keys", text: `{"cpuset":"1","later":{"a":[1]}}`, cpus: []int{1}},
		{name: "empty"},
		{name: "broken", text: `{"cpuset":`, problem: "malformed JSON"},
		{name: "a list", text: `["2-3"]`, problem: "malformed JSON"},
		{name: "wrong type", text: `{"cpuset":3}`, problem: "malformed JSON"},
		{name: "twice", text: `{"cpuset":"1","cpuset":"2"}`, problem: "duplicate"},
		{name: "another case", text: `{"CPUSet":"1"}`},
		{name: "backwards", text: `{"cpuset":"5-2"}`, problem: "the end is below the start"},
		{name: "negative", text: `{"cpuset":"-1"}`, problem: "not a number"},
		{name: "huge id", text: `{"cpuset":"99999999999999999999"}`, problem: "above"},
		{name: "huge range", text: `{"cpuset":"0-4000000000"}`, problem: "above"},
		{name: "other digits", text: `{"cpuset":"１-２"}`, problem: "not a number"},
		{name: "huge text", text: `{"cpuset":"` + strings.Repeat("1,", 40000) + `"}`, problem: "longer than"},
		{name: "negative node", text: `{"numaNodeResources":[{"node":-1,"resources":{"cpu":"2"}}]}`, problem: "no such NUMA node"},
		{name: "bad amount", text: `{"numaNodeResources":[{"node":1,"resources":{"cpu":"two"}}]}`, problem: "not a quantity"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := read(nil, map[string]string{KoordResourceStatus: c.text})
			if diff := cmp.Diff(c.cpus, got.CPUs.V) + cmp.Diff(c.nodes, got.Nodes.V); diff != "" {
				t.Error(diff)
			}
			if c.problem == "" && len(got.Problems) > 0 || c.problem != "" && (len(got.Problems) != 1 || !strings.Contains(got.Problems[0].String(), c.problem)) {
				t.Errorf("problems %v, want one about %q", got.Problems, c.problem)
			}
		})
	}
}

func TestExtended(t *testing.T) {
	got := read(nil, map[string]string{KoordExtended: `{"containers":{"worker":{
		"requests":{"kubernetes.io/batch-cpu":"1500","kubernetes.io/batch-memory":"3Gi"},
		"limits":{"kubernetes.io/batch-cpu":2000,"kubernetes.io/batch-memory":"3Gi"}},"idle":{}}}`})
	want := map[string]Batch{"worker": {RequestCPU: 1500, LimitCPU: 2000, LimitMemory: 3 << 30}, "idle": {}}
	if diff := cmp.Diff(want, got.Batch.V); diff != "" || len(got.Problems) > 0 {
		t.Error(diff, got.Problems)
	}
	got = read(nil, map[string]string{KoordExtended: `{"containers":{"a":{"limits":{"kubernetes.io/batch-cpu":"8"}}}}`})
	if len(got.Problems) != 1 || !got.Problems[0].Warning || !strings.Contains(got.Problems[0].Reason, "8 CPUs would be 8000") {
		t.Errorf("8 milli-CPUs: %v", got.Problems)
	}
	if len(got.Malformed()) != 0 || got.Batch.V["a"].LimitCPU != 8 {
		t.Error("a warning must not change what is done")
	}
}

func TestDevices(t *testing.T) {
	hami := map[string]string{KoordGPUIsolation: "HAMi-core"}
	for _, c := range []struct {
		name    string
		labels  map[string]string
		text    string
		want    GPU
		problem bool
	}{
		{name: "two", text: `{"gpu":[{"minor":0},{"minor":1}]}`, want: GPU{Minors: []int{0, 1}}},
		{name: "only an FPGA", text: `{"fpga":[{"minor":0}]}`, problem: true},
		{name: "no minor", text: `{"gpu":[{"id":"GPU-1"}]}`, problem: true},
		{
			name: "a part", labels: hami, text: `{"gpu":[{"minor":1,"resources":{"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory":"16Gi","koordinator.sh/gpu-memory-ratio":"50"}}]}`,
			want: GPU{Minors: []int{1}, Share: &GPUShare{Memory: 17179869184, Core: 50}},
		},
		{name: "whole for HAMi-core", labels: hami, text: `{"gpu":[{"minor":1,"resources":{"koordinator.sh/gpu-memory-ratio":"100"}}]}`, want: GPU{Minors: []int{1}}},
		{name: "no ratio", labels: hami, text: `{"gpu":[{"minor":1,"resources":{}}]}`, problem: true},
	} {
		got := read(c.labels, map[string]string{KoordDevices: c.text})
		if diff := cmp.Diff(c.want, got.GPU.V); diff != "" || (len(got.Problems) > 0) != c.problem {
			t.Error(c.name, diff, got.Problems)
		}
	}
}

func TestQuantity(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "500": 500, "-5": -5, "2Gi": 2 << 30, "1500m": 2, "2k": 2000, "1e3": 1000, "1.5Ki": 1536, "100n": 1, "9223372036854775807": 1<<63 - 1,
	} {
		if got, err := quantity(text).integer(); err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "Gi", "1Gib", "1 Gi", "1e999999999", "0x10", "１", "1/2", "--1", "8Ei", "99999999999999999999", "1_000", "inf", "1e3k"} {
		if got, err := quantity(text).integer(); err == nil {
			t.Errorf("%q is read as %d", text, got)
		}
	}
}

// FuzzRead writes foreign text into every annotation: nothing may panic, and malformed text must be
// reported as printable text.
func FuzzRead(f *testing.F) {
	f.Add("LSR", `{"cpuset":"2-3"}`, `{"containers":{"a":{"limits":{"kubernetes.io/batch-cpu":"1"}}}}`, `{"gpu":[{"minor":0}]}`)
	f.Add("BE", `{"numaNodeResources":[{"node":0,"resources":{"cpu":{}}}]}`, `{"containers":null}`, `[]`)
	f.Add("slow", `{}`, ``, `{"blocks":[{"name":"/dev/sda","type":"device","ioCfg":{"readBPS":1048576}}]}`)
	f.Add("LS", `{}`, `{"a":{"hugepages-2Mi":"64Mi"}}`, `{"a":{"hugepages-1Gi":"1"}}`)
	for _, p := range hostile.Pods(lifecycle.MaxValueBytes) {
		a := p.Annotations
		if len(a[KoordResourceStatus])+len(a[KoordExtended])+len(a[KoordDevices]) > 100 {
			f.Add("LS", a[KoordResourceStatus], a[KoordExtended], a[KoordDevices])
		}
	}
	f.Fuzz(func(t *testing.T, class, status, extended, devices string) {
		defer clock.Watch(t, len(class)+len(status)+len(extended)+len(devices))()
		got := read(map[string]string{KoordQoSClass: class, KoordGPUIsolation: "HAMi-core"}, map[string]string{
			KoordResourceStatus: status, KoordExtended: extended, KoordDevices: devices,
			TrimtabHugepages: extended, KoordBlkioQoS: devices, KoordResctrl: extended, TrimtabBlockIOClass: class,
		})
		for _, id := range got.CPUs.V {
			if id < 0 || id > 4095 {
				t.Errorf("CPU %d was read", id)
			}
		}
		for _, d := range got.Disks.V {
			if min(d.ReadBPS, d.WriteBPS, d.ReadIOPS, d.WriteIOPS) < 0 || strings.ContainsAny(d.Disk, " \n") {
				t.Errorf("a limit %+v was read", d)
			}
		}
		if strings.ContainsAny(got.BlockIOClass.V, "/ \n") {
			t.Errorf("a class %q was read", got.BlockIOClass.V)
		}
		for name, limits := range got.Hugepages.V.Limits {
			for size, n := range limits {
				if n < 0 || len(size) > 6 {
					t.Errorf("container %q: %d bytes of %q were read", name, n, size)
				}
			}
		}
		for _, p := range got.Problems {
			if strings.ContainsAny(p.String(), "\n\x1b") || len(p.String()) > 1200 {
				t.Errorf("problem cannot be printed: %q", p.String())
			}
		}
	})
}

// TestCPUQoS: which pods can request their own group identity, and which values.
func TestCPUQoS(t *testing.T) {
	for _, c := range []struct {
		class, text string
		want        CPUQoS
		problems    int
	}{
		{"LS", `{"enable":true,"groupIdentity":-1}`, CPUQoS{Enabled: true, Identity: lifecycle.Some(-1)}, 0},
		{"LS", `{"enable":true}`, CPUQoS{Enabled: true}, 0},
		{"LS", `{"enable":false,"groupIdentity":1}`, CPUQoS{Identity: lifecycle.Some(1)}, 0},
		{"LS", `{"groupIdentity":3,"enable":true}`, CPUQoS{Malformed: true, Enabled: true}, 1},
		{"LS", `{"enable":"yes"}`, CPUQoS{Malformed: true}, 1},
		{"LS", `{"enable":true,"enable":false}`, CPUQoS{Malformed: true}, 1},
		{"LS", ``, CPUQoS{}, 0},
		{"BE", `{"enable":true,"groupIdentity":-1}`, CPUQoS{}, 1},
		{"", `{`, CPUQoS{}, 1},
	} {
		got := Read(&lifecycle.Pod{
			Labels: map[string]string{KoordQoSClass: c.class}, Annotations: map[string]string{KoordCPUQoS: c.text},
		}, nil, Dialects())
		if got.CPUQoS.V != c.want || len(got.Problems) != c.problems {
			t.Errorf("%s %s: %+v, %v", c.class, c.text, got.CPUQoS.V, got.Problems)
		}
	}
}

// TestOOMScore: the bounds, and texts that are not numbers.
func TestOOMScore(t *testing.T) {
	for _, c := range []struct {
		pod, spec string
		want      map[string]int64 // "" means the whole pod
		problems  int
	}{
		{"-500", "", map[string]int64{"": -500}, 0},
		{"-1000", `{"main":1000}`, map[string]int64{"": -1000, "main": 1000}, 0},
		{"0", "", map[string]int64{"": 0}, 0},
		{"1001", "", map[string]int64{}, 1},
		{"-1001", `{"main":-500}`, map[string]int64{"main": -500}, 1},
		{"high", "", map[string]int64{}, 1},
		{"99999999999999999999", "", map[string]int64{}, 1},
		{" 5", "", map[string]int64{}, 1},
		{"", `{"main":5000,"side":1}`, map[string]int64{"side": 1}, 1},
		{"", `{"main":"5"}`, map[string]int64{}, 1},
		{"", `{"main":1.5}`, map[string]int64{}, 1},
		{"", `{"main":1,"main":2}`, map[string]int64{}, 1},
		{"", `[1]`, map[string]int64{}, 1},
		{"", `null`, map[string]int64{}, 0},
	} {
		got := Read(&lifecycle.Pod{Annotations: map[string]string{KoordOOMScore: c.pod, KoordOOMScoreSpec: c.spec}}, nil, Dialects())
		scores := map[string]int64{}
		if got.OOMScore.IsSet() {
			scores[""] = got.OOMScore.V
		}
		for name, v := range got.OOMScores.V {
			scores[name] = v
		}
		if diff := cmp.Diff(c.want, scores); diff != "" || len(got.Problems) != c.problems {
			t.Errorf("%q %q: %s, %v", c.pod, c.spec, diff, got.Problems)
		}
	}
}

// TestAllocatedIDs: valid ids, each of which names one device.
func TestAllocatedIDs(t *testing.T) {
	for _, c := range []struct {
		text     string
		uuids    []string
		rdma     []string
		problems int
	}{
		{`{"gpu":[{"minor":0,"id":"GPU-0af3-11"},{"minor":1,"id":"MIG-aa"}]}`, []string{"GPU-0af3-11", "MIG-aa"}, nil, 0},
		{`{"gpu":[{"minor":0,"id":"all"},{"minor":1}]}`, nil, nil, 0},
		{`{"gpu":[{"minor":0,"id":"GPU-a,all"}]}`, nil, nil, 0},
		{`{"gpu":[{"minor":0,"id":"GPU-1"},{"minor":1,"id":"1"}]}`, []string{"GPU-1", ""}, nil, 0},
		{`{"gpu":[{"minor":0,"id":"GPU-"}]}`, nil, nil, 0},
		{`{"rdma":[{"minor":0,"id":"0000:3B:00.0"}]}`, nil, []string{"0000:3b:00.0"}, 0},
		{`{"rdma":[{"id":"0000:3b:00.0","extension":{"vfs":[{"minor":1,"busID":"0000:3b:00.2"},{"busID":"0000:3b:00.7"}]}}]}`, nil, []string{"0000:3b:00.2", "0000:3b:00.7"}, 0},
		{`{"rdma":[{"id":"../../../etc"}]}`, nil, nil, 1},
		{`{"rdma":[{"id":"0000:3b:00.8"}]}`, nil, nil, 1},
		{`{"rdma":[{"id":"0000:3b:00.0","extension":{"vfs":[{}]}}]}`, nil, nil, 1},
		{`{"rdma":[{}]}`, nil, nil, 1},
		{`{"rdma":[{"id":"0000:3b:00.0"},{"id":"0000:3B:00.0"}]}`, nil, nil, 1},
		{`{"gpu":[{"minor":0,"id":"GPU-1"}],"rdma":[{"id":"x"}]}`, []string{"GPU-1"}, nil, 1},
		{`{"fpga":[{"minor":0}]}`, nil, nil, 1},
	} {
		got := Read(&lifecycle.Pod{Annotations: map[string]string{KoordDevices: c.text}}, nil, Dialects())
		if diff := cmp.Diff(c.uuids, got.GPU.V.UUIDs) + cmp.Diff(c.rdma, got.RDMA.V); diff != "" || len(got.Problems) != c.problems {
			t.Errorf("%s: %s, %v", c.text, diff, got.Problems)
		}
	}
}

func TestUnsetQuota(t *testing.T) {
	for text, c := range map[string]struct {
		said, unset bool
		problems    int
	}{"true": {true, true, 0}, "false": {true, false, 0}, "": {}, "yes": {problems: 1}, "True": {problems: 1}} {
		got := Read(&lifecycle.Pod{Annotations: map[string]string{TrimtabUnsetQuota: text}}, nil, Dialects())
		if got.UnsetQuota.IsSet() != c.said || got.UnsetQuota.V != c.unset || len(got.Problems) != c.problems {
			t.Errorf("%q: %+v, %v", text, got.UnsetQuota, got.Problems)
		}
	}
}
