package podspec

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// staticPod is a pod of one container with CPUs and memory nodes of the kubelet's
// static managers.
func staticPod(name string, cpus []int64, nodes ...int64) *podresources.PodResources {
	c := &podresources.ContainerResources{Name: "a", CpuIds: cpus}
	for _, n := range nodes {
		c.Memory = append(c.Memory, &podresources.ContainerMemory{
			MemoryType: "memory", Size: 1 << 30, Topology: &podresources.TopologyInfo{Nodes: []*podresources.NUMANode{{ID: n}}},
		})
	}
	return &podresources.PodResources{Namespace: "shop", Name: name, Containers: []*podresources.ContainerResources{c}}
}

// TestStaticGrants: what the kubelet's managers gave is known by pod; that nothing
// was given is, where the CPU manager gives some away. A resize is told of by the
// next answer, whoever it is for, and by one that is asked for in doubt.
func TestStaticGrants(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "kubelet.sock")
	s := &resourcesServer{allocatable: []int64{1, 2, 3, 4}}
	s.say(staticPod("one", []int64{2, 1}, 1, 0), staticPod("two", nil))
	serveResources(t, socket, s)
	g := runGrants(t, GrantsOptions{Socket: socket, Wait: 5 * time.Second})
	g.Ready(t.Context())
	g.Await(t.Context(), shopPod("u1", "one"), shopPod("u2", "two"))
	if d := cmp.Diff([]string{"u1", "u2"}, g.News()); d != "" {
		t.Errorf("news (-want +got):\n%s", d)
	}
	wants := func(uid string, want lifecycle.StaticGrant) {
		t.Helper()
		if d := cmp.Diff(want, g.Known(uid).StaticOf("a")); d != "" {
			t.Errorf("%s (-want +got):\n%s", uid, d)
		}
	}
	wants("u1", lifecycle.StaticGrant{CPUs: []int{1, 2}, Told: true, Mems: []int{0, 1}})
	wants("u2", lifecycle.StaticGrant{Told: true})
	if err := g.State().NoCPUs; err != nil {
		t.Error(err)
	}
	if g.Known("u1").StaticOf("init").Told {
		t.Error("of a container nobody told of, something is known")
	}

	s.say(staticPod("one", []int64{1}), staticPod("two", nil), staticPod("three", []int64{2}))
	g.Await(t.Context(), shopPod("u1", "one"))
	if news := g.News(); len(news) > 0 {
		t.Errorf("asked although all is known: %v", news)
	}
	g.Await(t.Context(), shopPod("u3", "three"))
	if d := cmp.Diff([]string{"u1", "u3"}, g.News()); d != "" {
		t.Errorf("news of others (-want +got):\n%s", d)
	}
	wants("u1", lifecycle.StaticGrant{CPUs: []int{1}, Told: true})

	s.say(staticPod("one", []int64{1}), staticPod("two", nil), staticPod("three", []int64{2, 3}))
	g.Doubt(shopPod("u3", "three"))
	if g.Granted(shopPod("u3", "three")) == nil {
		t.Error("what is in doubt is not known meanwhile")
	}
	g.Await(t.Context(), shopPod("u3", "three"))
	wants("u3", lifecycle.StaticGrant{CPUs: []int{2, 3}, Told: true})
}

// TestStaticGrantsUntold: a kubelet that gives no CPUs away, or does not say, tells
// those it lists and nothing of others.
func TestStaticGrantsUntold(t *testing.T) {
	for _, c := range []struct {
		name string
		s    *resourcesServer
		why  string
	}{
		{"policy none", &resourcesServer{}, "policy none"},
		{"old", &resourcesServer{refuses: true}, "disabled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "kubelet.sock")
			c.s.say(staticPod("one", []int64{1}), staticPod("two", nil))
			serveResources(t, socket, c.s)
			g := runGrants(t, GrantsOptions{Socket: socket, Wait: 5 * time.Second})
			g.Ready(t.Context())
			g.Await(t.Context(), shopPod("u1", "one"), shopPod("u2", "two"))
			if one, two := g.Known("u1").StaticOf("a"), g.Known("u2").StaticOf("a"); !one.Told || two.Told {
				t.Errorf("one %+v, two %+v", one, two)
			}
			if st := g.State(); !st.Up || st.NoCPUs == nil || !strings.Contains(st.NoCPUs.Error(), c.why) {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestStaticGrantsOf: CPUs of a pod as a whole are those of its containers without
// any; ids nobody has are not believed.
func TestStaticGrantsOf(t *testing.T) {
	pod := staticPod("one", []int64{4})
	pod.Containers = append(pod.Containers, &podresources.ContainerResources{Name: "b"}, &podresources.ContainerResources{Name: "c"})
	pod.CpuIds = []int64{6, 4, 5}
	pod.Memory = staticPod("", nil, 1).Containers[0].Memory
	all, err := grantsOf(&podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{pod}}, false)
	if err != nil {
		t.Fatal(err)
	}
	rest := lifecycle.StaticGrant{CPUs: []int{5, 6}, Told: true, Mems: []int{1}}
	want := map[string]lifecycle.StaticGrant{"a": {CPUs: []int{4}, Told: true, Mems: []int{1}}, "b": rest, "c": rest}
	if d := cmp.Diff(want, all[podName{"shop", "one"}].static); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for _, bad := range []*podresources.PodResources{
		staticPod("one", []int64{-1}), staticPod("one", []int64{1 << 40}), staticPod("one", nil, -1),
		staticPod("one", make([]int64, maxCPU+1)), {Namespace: "shop", Name: "one", CpuIds: []int64{-1}},
	} {
		if all, err := grantsOf(&podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{bad}}, true); err == nil {
			t.Errorf("believed: %v", all)
		}
	}
}

// FuzzGrantsOf: an answer is believed or refused, and what is believed has no id
// that no CPU or node can have.
func FuzzGrantsOf(f *testing.F) {
	for _, p := range []*podresources.PodResources{staticPod("one", []int64{1, 2}, 0), gpuPod("two", "a", "GPU-aa"), {}} {
		text, err := proto.Marshal(&podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{p}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var answer podresources.ListPodResourcesResponse
		if proto.Unmarshal(text, &answer) != nil {
			return
		}
		all, err := grantsOf(&answer, true)
		if err != nil {
			return
		}
		for name, pod := range all {
			for container, s := range pod.static {
				for _, id := range append(s.CPUs, s.Mems...) {
					if id < 0 || id >= maxCPU {
						t.Errorf("%v %s: %d", name, container, id)
					}
				}
			}
		}
	})
}
