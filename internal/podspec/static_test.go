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
	"github.com/trimtab/trimtab/test/clock"
)

// staticPod is a pod of one container with CPUs and memory nodes from the kubelet's static managers.
func staticPod(name string, cpus []int64, nodes ...int64) *podresources.PodResources {
	c := &podresources.ContainerResources{Name: "a", CpuIds: cpus}
	for _, n := range nodes {
		c.Memory = append(c.Memory, &podresources.ContainerMemory{
			MemoryType: "memory", Size: 1 << 30, Topology: &podresources.TopologyInfo{Nodes: []*podresources.NUMANode{{ID: n}}},
		})
	}
	return &podresources.PodResources{Namespace: "shop", Name: name, Containers: []*podresources.ContainerResources{c}}
}

// TestStaticGrants: the grants of the kubelet's managers are known by pod. If the CPU manager assigns CPUs,
// it is also known that a pod got none. A resize is noticed at the next answer, for whatever pod, and at a
// request after Invalidate.
func TestStaticGrants(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "kubelet.sock")
	s := &resourcesServer{allocatable: []int64{1, 2, 3, 4}}
	s.say(staticPod("one", []int64{2, 1}, 1, 0), staticPod("two", nil))
	serveResources(t, socket, s)
	told := make(chan []string, 8)
	g := runGrants(t, GrantsOptions{Socket: socket, Wait: 5 * time.Second, Changed: func(uids []string) { told <- uids }})
	tells := func(want ...string) {
		t.Helper()
		select {
		case got := <-told:
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("changed pods (-want +got):\n%s", d)
			}
		case <-time.After(time.Minute):
			t.Fatalf("Changed was not called with %v", want)
		}
	}
	g.AwaitFirst(t.Context())
	g.Await(t.Context(), shopPod("u1", "one"), shopPod("u2", "two"))
	tells("u1", "u2")
	wants := func(uid string, want lifecycle.StaticGrant) {
		t.Helper()
		if d := cmp.Diff(want, g.Known(uid).StaticGrantOf("a")); d != "" {
			t.Errorf("%s (-want +got):\n%s", uid, d)
		}
	}
	wants("u1", lifecycle.StaticGrant{CPUs: []int{1, 2}, Reported: true, Mems: []int{0, 1}})
	wants("u2", lifecycle.StaticGrant{Reported: true})
	if err := g.State().NoCPUs; err != nil {
		t.Error(err)
	}
	if g.Known("u1").StaticGrantOf("init").Reported {
		t.Error("there is a grant of a container that was never reported")
	}

	s.say(staticPod("one", []int64{1}), staticPod("two", nil), staticPod("three", []int64{2}))
	g.Await(t.Context(), shopPod("u1", "one"))
	wants("u1", lifecycle.StaticGrant{CPUs: []int{1, 2}, Reported: true, Mems: []int{0, 1}}) // known, so there is no request
	g.Await(t.Context(), shopPod("u3", "three"))
	tells("u1", "u3")
	wants("u1", lifecycle.StaticGrant{CPUs: []int{1}, Reported: true})

	s.say(staticPod("one", []int64{1}), staticPod("two", nil), staticPod("three", []int64{2, 3}))
	g.Invalidate(shopPod("u3", "three"))
	if g.Granted(shopPod("u3", "three")) == nil {
		t.Error("what is in doubt is not known meanwhile")
	}
	g.Await(t.Context(), shopPod("u3", "three"))
	wants("u3", lifecycle.StaticGrant{CPUs: []int{2, 3}, Reported: true})
}

// TestStaticGrantsUntold: a kubelet that assigns no CPUs, or does not report whether it does, says nothing
// about pods that it does not list.
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
			g.AwaitFirst(t.Context())
			g.Await(t.Context(), shopPod("u1", "one"), shopPod("u2", "two"))
			if one, two := g.Known("u1").StaticGrantOf("a"), g.Known("u2").StaticGrantOf("a"); !one.Reported || two.Reported {
				t.Errorf("one %+v, two %+v", one, two)
			}
			if st := g.State(); !st.Up || st.NoCPUs == nil || !strings.Contains(st.NoCPUs.Error(), c.why) {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestStaticGrantsRemembered: the next agent knows the kubelet's assignments of CPUs while the kubelet does
// not answer, but not its devices. The kubelet's answer replaces them.
func TestStaticGrantsRemembered(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "kubelet.sock")
	s := &resourcesServer{allocatable: []int64{1, 2}}
	pod := staticPod("one", []int64{1, 2}, 0)
	pod.Containers[0].Devices = gpuPod("one", "a", "GPU-aa").Containers[0].Devices
	s.say(pod, staticPod("gone", []int64{3}))
	stop := serveResources(t, socket, s)
	saved := make(chan []byte, 8)
	save := func(data []byte) error { saved <- data; return nil }
	first := runGrants(t, GrantsOptions{Socket: socket, Wait: 5 * time.Second, Save: save})
	first.AwaitFirst(t.Context())
	first.Await(t.Context(), shopPod("u1", "one"), shopPod("u2", "gone"))
	var kept []byte
	select {
	case kept = <-saved:
	case <-time.After(time.Minute):
		t.Fatal("nothing is kept")
	}
	stop()

	g := runGrants(t, GrantsOptions{Socket: socket, Wait: 5 * time.Second, Saved: kept})
	g.AwaitFirst(t.Context())
	g.Await(t.Context(), shopPod("u1", "one"))
	want := &lifecycle.KubeletGrants{UID: "u1", Namespace: "shop", Name: "one", Static: map[string]lifecycle.StaticGrant{
		"a": {CPUs: []int{1, 2}, Reported: true, Mems: []int{0}},
	}}
	for _, got := range []*lifecycle.KubeletGrants{g.Granted(shopPod("u1", "one")), g.Known("u1")} {
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
	s.say(staticPod("one", []int64{2}))
	serveResources(t, socket, s)
	until(t, "the kubelet is asked again", func() bool { return cmp.Equal(g.Known("u1").StaticGrantOf("a").CPUs, []int{2}) })
	if g.Known("u2") != nil {
		t.Error("a pod the kubelet does not have any more is known from before")
	}
}

// FuzzRecallGrants: a file is read or refused, and what is read has only possible ids.
func FuzzRecallGrants(f *testing.F) {
	f.Add([]byte(`{"v":1,"pods":[{"uid":"u","namespace":"n","name":"p","containers":{"a":{"cpus":[1],"mems":[0],"told":true}}}]}`))
	f.Add([]byte(`{"v":2}`))
	f.Add([]byte(`{"v":1,"pods":[{"uid":"u","name":"p","containers":{"a":{"cpus":[-1]}}}]}`))
	f.Add([]byte(`{"v":1,"pods":[{"uid":"u","namespace":"n","name":"p","containers":{"a":{"cpus":[` + strings.Repeat("1,", 60_000) + `1],"told":true}}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		defer clock.Watch(t, len(data))()
		all, _ := loadGrants(data)
		for uid, k := range all {
			for _, s := range k.Static {
				for _, id := range append(s.CPUs, s.Mems...) {
					if id < 0 || id >= maxID || uid == "" {
						t.Errorf("%q: %d", uid, id)
					}
				}
			}
		}
	})
}

// TestStaticGrantsOf: the CPUs of a pod as a whole are those of its containers without CPUs of their own;
// impossible ids are refused.
func TestStaticGrantsOf(t *testing.T) {
	pod := staticPod("one", []int64{4})
	pod.Containers = append(pod.Containers, &podresources.ContainerResources{Name: "b"}, &podresources.ContainerResources{Name: "c"})
	pod.CpuIds = []int64{6, 4, 5}
	pod.Memory = staticPod("", nil, 1).Containers[0].Memory
	all, _, err := parseGrants(&podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{pod}}, false)
	if err != nil {
		t.Fatal(err)
	}
	rest := lifecycle.StaticGrant{CPUs: []int{5, 6}, Reported: true, Mems: []int{1}}
	want := map[string]lifecycle.StaticGrant{"a": {CPUs: []int{4}, Reported: true, Mems: []int{1}}, "b": rest, "c": rest}
	if d := cmp.Diff(want, all[podName{"shop", "one"}].static); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for _, bad := range []*podresources.PodResources{
		staticPod("one", []int64{-1}), staticPod("one", []int64{1 << 40}), staticPod("one", nil, -1),
		staticPod("one", make([]int64, maxID+1)), {Namespace: "shop", Name: "one", CpuIds: []int64{-1}},
	} {
		all, unread, err := parseGrants(&podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{bad}}, true)
		if err != nil || len(all) > 0 || len(unread) != 1 {
			t.Errorf("believed: %v, %v, %v", all, unread, err)
		}
	}
}

// FuzzGrantsOf: an answer is accepted or refused, and an accepted one has only possible ids.
func FuzzGrantsOf(f *testing.F) {
	for _, p := range []*podresources.PodResources{staticPod("one", []int64{1, 2}, 0), gpuPod("two", "a", "GPU-aa"), {}} {
		text, err := proto.Marshal(&podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{p}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		defer clock.Watch(t, len(text))()
		var answer podresources.ListPodResourcesResponse
		if proto.Unmarshal(text, &answer) != nil {
			return
		}
		all, _, err := parseGrants(&answer, true)
		if err != nil {
			return
		}
		for name, pod := range all {
			for container, s := range pod.static {
				for _, id := range append(s.CPUs, s.Mems...) {
					if id < 0 || id >= maxID {
						t.Errorf("%v %s: %d", name, container, id)
					}
				}
			}
		}
	})
}
