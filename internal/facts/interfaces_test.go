package facts

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement/none"
)

// TestInterfaces: a creation has the interfaces that its pod may have for the container, and no others. A pod without
// a rule makes the agent read nothing.
func TestInterfaces(t *testing.T) {
	t.Parallel()
	n, o := newNode(t)
	n.state = engine.NewState(n.state.Machine, engine.Policy{
		Dialects: intent.Dialects(), Placement: none.Policy{},
		Rules: intent.Rules{{Kinds: []intent.Kind{intent.NetDeviceKind}, Namespaces: []string{"net"}, Decision: intent.Allow}},
	})
	var read []string
	o.HasInterface = func(name string) (has, known bool) {
		read = append(read, name)
		return name == "eth1", name != "eth9"
	}
	g := New(o)
	for _, c := range []struct {
		name, namespace, container string
		kind                       lifecycle.Kind
		want                       map[string]bool
		read                       []string
	}{
		{"one container's and the pod's", "net", "a", lifecycle.CreateContainer, map[string]bool{"eth1": true, "eth2": false}, []string{"eth2", "eth1", "eth9"}},
		{"the pod's", "net", "b", lifecycle.CreateContainer, map[string]bool{"eth1": true}, []string{"eth1", "eth9"}},
		{"later", "net", "a", lifecycle.StartContainer, nil, nil},
		{"nobody allows it", "other", "a", lifecycle.CreateContainer, nil, nil},
	} {
		read = nil
		pod := &lifecycle.Pod{ID: c.namespace, UID: c.namespace, Name: "p", Namespace: c.namespace, Annotations: map[string]string{
			intent.NRINetDevices + "/container.a": "- {hostIf: eth2}",
			intent.NRIPodNetwork:                  "[{name: eth1, new_name: net1}, {name: eth9}]",
		}}
		n.decide(lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: pod})
		var f engine.Facts
		g.Read(&route.Capabilities{}, &lifecycle.Event{Kind: c.kind, Pod: pod, Container: &lifecycle.Container{ID: "c", PodID: pod.ID, Name: c.container}}, &f)
		if d := cmp.Diff(c.want, f.HostInterfaces); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
		if d := cmp.Diff(c.read, read); d != "" {
			t.Errorf("%s: read %s", c.name, d)
		}
	}
}
