package agent

import (
	"testing"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/kube"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestClusterOff: without cluster.enabled the agent has no client of the API server and no service that
// uses one, whatever else the configuration says.
func TestClusterOff(t *testing.T) {
	c := config.Default()
	c.Cluster.Kubeconfig, c.Cluster.NodeName = "/etc/kubernetes/kubelet.conf", "n1"
	c.Cluster.PodAnnotation, c.PodSpec.APIServer = true, true
	off := connectCluster(c.Cluster, kube.Options{})
	if off.client != nil || off.clientErr != nil || off.status() != nil {
		t.Errorf("there is a client: %+v", off)
	}
	a := &Agent{opt: Options{Config: c}}
	if parts := a.clusterServices(off.client); parts != nil || a.layers != nil || a.cluster.events != nil {
		t.Errorf("parts: %v", parts)
	}
	for _, r := range specSources(c.PodSpec, nil, off.client) {
		if r.Source() == lifecycle.FromAPIServer {
			t.Error("pods are asked of the API server")
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}
