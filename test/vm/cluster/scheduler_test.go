package cluster_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	nrt "github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2/helper"
	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2/helper/numanode"
	"github.com/k8stopologyawareschedwg/podfingerprint"
	kjson "sigs.k8s.io/json"

	"github.com/trimtab/trimtab/internal/report/zones"
)

// TestSchedulerReadsReports: the types and helpers of the scheduler plugin read every zone and compute the same sum
// over the pods.
func TestSchedulerReadsReports(t *testing.T) {
	files, err := filepath.Glob("../../../internal/nodeview/testdata/zones-*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var golden struct {
			NRT json.RawMessage `json:"nrt"`
		}
		if err := json.Unmarshal(text, &golden); err != nil {
			t.Fatal(err)
		}
		var o nrt.NodeResourceTopology
		if strict, err := kjson.UnmarshalStrict(golden.NRT, &o); err != nil || len(strict) > 0 {
			t.Fatalf("%s: %v %v", file, err, strict)
		}
		for _, z := range o.Zones {
			id, err := numanode.NameToID(z.Name)
			if err != nil || z.Type != helper.ZoneTypeNUMANode || len(z.Costs) != len(o.Zones) {
				t.Errorf("%s: %s of type %s is read as node %d: %v", file, z.Name, z.Type, id, err)
			}
			for _, c := range z.Costs {
				if _, err := numanode.NameToID(c.Name); err != nil {
					t.Error(err)
				}
			}
			native := map[string]bool{}
			for _, r := range z.Resources {
				native[r.Name] = true
				if r.Available.Cmp(r.Allocatable) > 0 || r.Allocatable.Cmp(r.Capacity) > 0 {
					t.Errorf("%s: %s of %s: %v of %v of %v", file, r.Name, z.Name, r.Available, r.Allocatable, r.Capacity)
				}
			}
			if !native["cpu"] || !native["memory"] {
				t.Errorf("%s: %s has %v", file, z.Name, native)
			}
		}
	}
	pods := []zones.Pod{{Namespace: "default", Name: "a"}, {Namespace: "kube-system", Name: "kube-proxy-x7"}, {Namespace: "d", Name: ""}}
	sum := podfingerprint.NewFingerprint(0)
	for i := range len(pods) + 1 {
		if err := sum.Check(zones.Fingerprint(pods[:i])); err != nil {
			t.Errorf("%d pods: %v", i, err)
		}
		if i < len(pods) {
			_ = sum.Add(pods[i].Namespace, pods[i].Name)
		}
	}
}
