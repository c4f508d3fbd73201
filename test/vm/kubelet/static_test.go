package kubelet_test

import (
	"fmt"
	"reflect"
	"testing"
)

const (
	podsAPI  = "kubelet Pods API"
	podsList = "kubelet /pods"
	class    = "koordinator.sh/qosClass"
	assigned = "scheduling.koordinator.sh/resource-status"
)

// owner is a pod with CPUs that its scheduler assigned.
func owner(name, cpus string, requests map[string]string) pod {
	return pod{
		name: name, labels: map[string]string{class: "LSR"}, annotations: map[string]string{assigned: fmt.Sprintf(`{"cpuset":%q}`, cpus)},
		requests: requests, limits: requests,
	}
}

// TestStaticPods runs a pod of each class from manifests, restarts the kubelet, and writes to the pods'
// cgroups as a kubelet does.
func TestStaticPods(t *testing.T) {
	t.Parallel()
	testTurns.Play(t)
	n := boot(t, nil, map[string]any{"featureGates": map[string]bool{"PodsAPI": true}})
	n.apply(
		owner("db", "0-1", map[string]string{"cpu": "2", "memory": "128Mi"}),
		pod{name: "web", labels: map[string]string{class: "LS"}, requests: map[string]string{"cpu": "500m"}},
		pod{name: "job", labels: map[string]string{class: "BE"}, annotations: map[string]string{"node.koordinator.sh/extended-resource-spec": batch}},
		pod{name: "plain"},
	)
	wants := map[string]want{
		"db":    {cpus: "0-1", quota: -1, podQuota: -1, class: "dedicated", seat: "exclusive"},
		"web":   {cpus: "2-3", quota: -1, class: "shared", seat: "shared"},
		"job":   {cpus: "2-3", shares: 512, quota: 50_000, podShares: 512, podQuota: 50_000, memory: 128 << 20, podMemory: 128 << 20, class: "reclaimed"},
		"plain": {cpus: "2-3"},
	}
	for name, w := range wants {
		w.source = podsAPI
		wants[name] = w
	}
	before := n.awaitAll("started", wants)
	n.toldBy(podsAPI, len(wants))
	slice := n.m.Read(burstable)

	n.end()
	n.run()
	// A new pod shows that the new kubelet works, and makes it write the slice of its class again.
	n.apply(pod{name: "late", labels: map[string]string{class: "LS"}, requests: map[string]string{"cpu": "1"}})
	wants["late"] = want{cpus: "2-3", quota: -1, class: "shared", seat: "shared", source: podsAPI}
	after := n.awaitAll("kubelet restarted", wants)
	n.toldBy(podsAPI, len(wants))
	n.unmoved(before, after)
	if now := n.m.Read(burstable); now == slice {
		t.Errorf("the kubelet has not written %s: it is still %s", burstable, now)
	}

	// The values that a kubelet writes to a pod's cgroup come from the pod's spec.
	n.m.Sh(fmt.Sprintf(`cd %s/kubepods
echo "200000 100000" >pod%[2]s/cpu.max
echo 1 >besteffort/pod%[3]s/cpu.weight
echo max >besteffort/pod%[3]s/cpu.max
echo max >besteffort/pod%[3]s/memory.max`, cgroups, after["db"].uid, after["job"].uid))
	n.awaitAll("the kubelet's own values at the pods' cgroups", wants)
}

// unmoved compares containers and values before and after a restart.
func (n *node) unmoved(before, after map[string]running) {
	n.t.Helper()
	for name, was := range before {
		if is := after[name]; !reflect.DeepEqual(is, was) {
			n.t.Errorf("the kubelet's restart changed %s from %+v to %+v", name, was, is)
		}
	}
}

const burstable = cgroups + "/kubepods/burstable/cpu.weight"

// toldBy waits until the pods' specs are known from a source.
func (n *node) toldBy(source string, pods int) {
	n.t.Helper()
	n.await("pod specs", func() error {
		s, err := n.a.Status()
		if err != nil {
			return err
		}
		for _, p := range s.PodSpecs {
			if p.Source == source && p.Up && p.Pods == pods {
				return nil
			}
		}
		return fmt.Errorf("want %d pods by %s, have %+v", pods, source, s.PodSpecs)
	})
}

// batch returns the annotations that a webhook adds to a pod beside its resources. A kubelet without an API
// server refuses pods that request unknown resources, so these pods have only the annotation.
const batch = `{"containers":{"c":{"requests":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"128Mi"},` +
	`"limits":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"128Mi"}}}}`
