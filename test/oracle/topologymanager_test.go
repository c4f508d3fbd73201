package oracle

import (
	"fmt"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	cadvisor "github.com/google/cadvisor/info/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/placement/numahints"
)

// quiet keeps the kubelet's log out of the test's: it writes some lines for each merge.
func quiet() { klog.SetLogger(logr.Discard()) }

// kubeletHints are the hints of a resource as the kubelet has them.
func kubeletHints(r numahints.Resource) []topologymanager.TopologyHint {
	if r.Hints == nil {
		return nil
	}
	out := []topologymanager.TopologyHint{}
	for _, h := range r.Hints {
		one := topologymanager.TopologyHint{Preferred: h.Preferred}
		if !h.Any {
			one.NUMANodeAffinity, _ = bitmask.NewBitMask(h.Nodes.Indices()...)
		}
		out = append(out, one)
	}
	return out
}

// hintText describes the kubelet's hint as hints of ours are printed.
func hintText(h topologymanager.TopologyHint) string {
	if h.NUMANodeAffinity == nil {
		return fmt.Sprint("any ", h.Preferred)
	}
	return fmt.Sprint(h.NUMANodeAffinity.GetBits(), " ", h.Preferred)
}

func ourText(h numahints.Hint) string {
	if h.Any {
		return fmt.Sprint("any ", h.Preferred)
	}
	return fmt.Sprint(h.Nodes.Indices(), " ", h.Preferred)
}

// kubeletPolicies makes the kubelet's policies for a machine of n nodes with these distances.
func kubeletPolicies(t *rapid.T, n int, distances []uint64, closest bool) map[numahints.Policy]topologymanager.Policy {
	o := topologymanager.PolicyOptions{PreferClosestNUMA: closest, MaxAllowableNUMANodes: 8}
	var nodes []cadvisor.Node
	for i := range n {
		nodes = append(nodes, cadvisor.Node{Id: i, Distances: distances[i*n : (i+1)*n]})
	}
	info, err := topologymanager.NewNUMAInfo(nodes, o)
	if err != nil {
		t.Fatal(err)
	}
	return map[numahints.Policy]topologymanager.Policy{
		numahints.BestEffort: topologymanager.NewBestEffortPolicy(info, o), numahints.Restricted: topologymanager.NewRestrictedPolicy(info, o),
		numahints.SingleNode: topologymanager.NewSingleNumaNodePolicy(info, o),
	}
}

// TestMergedHints: each policy of the kubelet and ours choose the same from the same hints.
func TestMergedHints(t *testing.T) {
	quiet()
	preferred, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "nodes")
		distances := make([]uint64, n*n)
		for i := range n {
			for j := range i + 1 {
				d := rapid.Uint64Range(11, 13).Draw(t, "distance")
				if i == j {
					d = 10
				}
				distances[i*n+j], distances[j*n+i] = d, d
			}
		}
		hint := rapid.Custom(func(t *rapid.T) numahints.Hint {
			h := numahints.Hint{Preferred: rapid.Bool().Draw(t, "preferred")}
			if h.Any = rapid.IntRange(0, 9).Draw(t, "any") == 0; !h.Any {
				h.Nodes = numahints.Mask(rapid.Uint64Range(1, uint64(numahints.AllNodes(n))).Draw(t, "set"))
			}
			return h
		})
		var ours []numahints.Resource
		theirs := map[string][]topologymanager.TopologyHint{}
		for i := range rapid.IntRange(0, 4).Draw(t, "resources") {
			r := numahints.Resource{Name: fmt.Sprint("r", i)}
			if rapid.IntRange(0, 7).Draw(t, "no preference") > 0 {
				r.Hints = slices.Clip(append([]numahints.Hint{}, rapid.SliceOfN(hint, 0, 6).Draw(t, "hints")...))
			}
			ours, theirs[r.Name] = append(ours, r), kubeletHints(r)
		}
		closest := rapid.Bool().Draw(t, "closest")
		for name, policy := range kubeletPolicies(t, n, distances, closest) {
			want, admitted := policy.Merge(klog.Background(), []map[string][]topologymanager.TopologyHint{theirs})
			got := numahints.Merge(n, ours, numahints.Options{
				Policy: name, PreferClosest: closest, Distance: func(a, b int) int { return int(distances[a*n+b]) }, //nolint:gosec // small
			})
			if hintText(want) != ourText(got.Hint()) || admitted != got.Admitted {
				t.Fatalf("%s, %d nodes, closest %v: %+v\nthe kubelet chooses %s, admitted %v; we choose %s, admitted %v", name, n, closest, ours,
					hintText(want), admitted, ourText(got.Hint()), got.Admitted)
			}
			if want.Preferred {
				preferred++
			}
			if !admitted {
				refused++
			}
		}
	})
	if preferred == 0 || refused == 0 {
		t.Errorf("%d preferred, %d refused: too few for this test", preferred, refused)
	}
	t.Logf("%d preferred, %d refused", preferred, refused)
}
