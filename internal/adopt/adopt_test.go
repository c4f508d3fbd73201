package adopt

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/test/clock"
)

// TestRead reads a file of each system, and says where a bad one is wrong.
func TestRead(t *testing.T) {
	t.Parallel()
	const cpus, mems = "/var/lib/kubelet/cpu_manager_state", "/var/lib/kubelet/memory_manager_state"
	const pools, nodes = "/var/lib/katalyst/qrm_advisor/cpu_plugin_state", "/var/lib/katalyst/qrm_advisor/memory_plugin_state"
	const cache = "/var/lib/nri-resource-policy/cache"
	for _, c := range []struct {
		system string
		files  map[string]string
		want   []lifecycle.FormerContainer
		err    string
	}{
		{
			system: "kubelet",
			files: map[string]string{
				cpus: `{"policyName":"static","defaultCpuSet":"0,4-7","entries":{"u1":{"a":"2-3","none":""},"u0":{"b":"1"}},"checksum":7}`,
				mems: `{"policyName":"Static","entries":{"u1":{"a":[{"numaAffinity":[1],"type":"memory","size":5},{"numaAffinity":[0,1],"type":"hugepages-1Gi","size":5}]}}}`,
			},
			want: []lifecycle.FormerContainer{
				{CPUs: "0,4-7", Class: "shared", Where: cpus + ": defaultCpuSet"},
				{PodUID: "u0", Container: "b", CPUs: "1", Exclusive: true, Class: "exclusive", Where: cpus + ": entries.u0.b"},
				{PodUID: "u1", Container: "a", CPUs: "2-3", Mems: "0-1", Exclusive: true, Class: "exclusive", Where: cpus + ": entries.u1.a, " + mems + ": entries.u1.a"},
			},
		},
		{
			system: "katalyst",
			files: map[string]string{
				pools: `{"pod_entries":{"share":{"":{"allocation_result":"0-3"}},"u":{"a":{"owner_pool_name":"share","qosLevel":"shared_cores","allocation_result":"0-3"},"b":{"owner_pool_name":"dedicated","qosLevel":"dedicated_cores","allocation_result":"5"}}}}`,
				nodes: `{"pod_resource_entries":{"memory":{"u":{"b":{"numa_allocation_result":"1"}}}}}`,
			},
			want: []lifecycle.FormerContainer{
				{PodUID: "u", Container: "a", CPUs: "0-3", Class: "share", Where: pools + ": pod_entries.u.a"},
				{PodUID: "u", Container: "b", CPUs: "5", Mems: "1", Exclusive: true, Class: "dedicated_cores", Where: pools + ": pod_entries.u.b, " + nodes + ": pod_resource_entries.memory.u.b"},
			},
		},
		{system: "katalyst", files: map[string]string{pools: `{"pod_entries":{"u":{"a":{"allocation_result":"x"}}}}`}, err: pools + ": pod_entries.u.a: allocation_result: "},
		{
			system: "nri-plugins",
			files: map[string]string{cache: `{"Containers":{"1":{"Ctr":{"linux":{"resources":{"cpu":{"cpus":"4,5"}}}}},"2":{"Ctr":{"linux":{"resources":{"cpu":{"cpus":"0-3","mems":"0"}}}}},"3":{}},
				"PolicyName":"topology-aware","PolicyJSON":{"allocations":"{\"1\":{\"Exclusive\":\"4-5\",\"Pool\":\"socket #0\"}}"}}`},
			want: []lifecycle.FormerContainer{
				{ID: "1", CPUs: "4-5", Exclusive: true, Class: "socket #0", Where: cache + ": Containers.1"},
				{ID: "2", CPUs: "0-3", Mems: "0", Class: "topology-aware", Where: cache + ": Containers.2"},
			},
		},
		{system: "nri-plugins", files: map[string]string{cache: `{"PolicyJSON":{"allocations":"{"}}`}, err: cache + ": PolicyJSON.allocations: line 1: "},
		{system: "nri-plugins", err: "there is no " + cache},
		{system: "koordinator"},
		{system: "kubelet", files: map[string]string{cpus: `{"policyName":"none","defaultCpuSet":"","checksum":1}`}},
		{system: "kubelet", err: "there is no " + cpus + " and no " + mems},
		{system: "kubelet", files: map[string]string{cpus: "{\n\"policyName\":\n"}, err: cpus + ": line 3: "},
		{system: "kubelet", files: map[string]string{cpus: "{\"policyName\": \"static\",\n\"entries\": 5}"}, err: cpus + ": line 2: "},
		{system: "kubelet", files: map[string]string{cpus: `{"policyName":"static","entries":{"u":{"a":"3-1"}}}`}, err: cpus + `: entries.u.a: "3-1" is not a list`},
		{system: "kubelet", files: map[string]string{mems: `{"entries":{"u":{"a":[{"numaAffinity":[-1]}]}}}`}, err: mems + ": entries.u.a: numaAffinity: "},
		{system: "kubelet", files: map[string]string{cpus: strings.Repeat(" ", MaxBytes+1)}, err: cpus + ": the file is larger than 32 MiB"},
	} {
		s, err := FindSystem(c.system)
		if err != nil {
			t.Fatal(err)
		}
		root := fstest.MapFS{}
		for path, text := range c.files {
			root[path[1:]] = &fstest.MapFile{Data: []byte(text)}
		}
		got, err := s.Read(root)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: the error is %v, wanted %q", c.system, err, c.err)
			}
			continue
		}
		if d := cmp.Diff(c.want, got.Containers); err != nil || d != "" {
			t.Errorf("%s: %v %s", c.system, err, d)
		}
	}
	if _, err := FindSystem("other"); err == nil || !strings.Contains(err.Error(), strings.Join(SystemNames(), ", ")) {
		t.Errorf("an unknown agent: %v", err)
	}
}

// TestMatchContainers finds the most exact row of each container.
func TestMatchContainers(t *testing.T) {
	t.Parallel()
	a := &lifecycle.FormerAgent{System: "kubelet", Containers: []lifecycle.FormerContainer{
		{Where: "all"}, {PodUID: "u", Where: "pod"}, {PodUID: "u", Container: "a", Where: "name"}, {ID: "3", Where: "id"},
	}}
	pods := []*lifecycle.Pod{{ID: "p", UID: "u"}, {ID: "q", UID: "v"}, nil}
	var containers []*lifecycle.Container
	for _, c := range []string{"1 p a", "2 p b", "3 p a", "4 q a", "5 gone a"} {
		f := strings.Fields(c)
		containers = append(containers, &lifecycle.Container{ID: f[0], PodID: f[1], Name: f[2]})
	}
	got, err := MatchContainers(a, pods, append(containers, nil))
	if err != nil {
		t.Fatal(err)
	}
	where := map[string]string{}
	for id, f := range got {
		where[id] = f.Where
	}
	if d := cmp.Diff(map[string]string{"1": "name", "2": "pod", "3": "id", "4": "all"}, where); d != "" {
		t.Error(d)
	}
}

// FuzzRead reads any text as each file. Rows are sorted, name a place, and have lists as the kernel writes them.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"policyName":"static","defaultCpuSet":"0,4-7","entries":{"u1":{"a":"2-3"}}}`))
	f.Add([]byte(`{"policyName":"Static","entries":{"u1":{"a":[{"numaAffinity":[1]}]}}}`))
	f.Add([]byte(`{"pod_entries":{"u":{"a":{"allocation_result":"0-3"}}},"pod_resource_entries":{"memory":{"u":{"b":{"numa_allocation_result":"1"}}}}}`))
	f.Add([]byte(`{"Containers":{"1":{"Ctr":{"linux":{"resources":{"cpu":{"cpus":"4,5"}}}}}},"PolicyJSON":{"allocations":"{\"1\":{\"Exclusive\":\"4-5\"}}"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		defer clock.Watch(t, len(text))()
		for _, s := range Systems() {
			for _, file := range s.Files {
				got, err := s.Read(fstest.MapFS{file.Path[1:]: {Data: text}})
				if err != nil {
					if !strings.Contains(err.Error(), file.Path) {
						t.Errorf("%v names no file", err)
					}
					continue
				}
				if !slices.IsSortedFunc(got.Containers, compareEntries) {
					t.Errorf("not sorted: %v", got.Containers)
				}
				for _, row := range got.Containers {
					for _, l := range []string{row.CPUs, row.Mems} {
						if again, err := normalizeList(l); err != nil || again != l {
							t.Errorf("%v has the list %q: %v", row, l, err)
						}
					}
					if row.CPUs+row.Mems+row.Class == "" || row.Where == "" {
						t.Errorf("%+v says nothing", row)
					}
				}
			}
		}
	})
}

// TestParsePod reads annotations of pods; what cannot be read is no row.
func TestParsePod(t *testing.T) {
	t.Parallel()
	koord := func(status string) *lifecycle.Pod {
		return &lifecycle.Pod{ID: "p", UID: "u", Labels: map[string]string{"koordinator.sh/qosClass": "LSR"}, Annotations: map[string]string{"scheduling.koordinator.sh/resource-status": status}}
	}
	for _, c := range []struct {
		system string
		pod    *lifecycle.Pod
		want   string
	}{
		{"koordinator", koord(`{"cpuset":"2,3"}`), "2-3 LSR true"},
		{"koordinator", koord(`{}`), " LSR false"},
		{"koordinator", koord(`{"cpuset":"x"}`), ""},
		{"koordinator", &lifecycle.Pod{ID: "p", UID: "u"}, ""},
		{"rubik", &lifecycle.Pod{ID: "p", UID: "u", Labels: map[string]string{"volcano.sh/preemptable": "true"}}, " offline false"},
		{"rubik", &lifecycle.Pod{ID: "p", UID: "u", Annotations: map[string]string{"volcano.sh/preemptable": "false"}}, ""},
	} {
		got, err := MatchContainers(&lifecycle.FormerAgent{System: c.system}, []*lifecycle.Pod{c.pod}, []*lifecycle.Container{{ID: "1", PodID: "p", Name: "a"}})
		text := ""
		if row, is := got["1"]; is {
			text = fmt.Sprint(row.CPUs, " ", row.Class, " ", row.Exclusive)
		}
		if err != nil || text != c.want {
			t.Errorf("%s: %q instead of %q, %v", c.system, text, c.want, err)
		}
	}
}
