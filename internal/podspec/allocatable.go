package podspec

import (
	"context"
	"errors"
	"fmt"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

var errNotConnected = errors.New("the agent is not connected to the PodResources socket of the kubelet")

// Devices lists the devices that the kubelet can assign to containers, also those that are already assigned. It returns
// nil without an error if the PodResources API is not used, and errNotConnected if there is no connection to the
// kubelet.
func (g *Grants) Devices(ctx context.Context) ([]lifecycle.KubeletDevice, error) {
	if g.o.Socket == "" {
		return nil, nil
	}
	if err := g.callSem.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer g.callSem.Release(1)
	if g.conn == nil { // the agent has sent no request yet, or the last request failed
		return nil, errNotConnected
	}
	answer, err := podresources.NewPodResourcesListerClient(g.conn).GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	if err != nil {
		return nil, g.explain(err)
	}
	return parseAllocatable(answer)
}

// parseAllocatable reads the devices of an answer to GetAllocatableResources.
func parseAllocatable(answer *podresources.AllocatableResourcesResponse) ([]lifecycle.KubeletDevice, error) {
	var out []lifecycle.KubeletDevice
	for _, d := range answer.GetDevices() {
		var nodes []int
		for _, n := range d.GetTopology().GetNodes() {
			if id := n.GetID(); id >= 0 && id <= maxNode { // a device plugin that does not know the NUMA node reports -1, or no node
				nodes = append(nodes, int(id))
			}
		}
		for _, id := range d.GetDeviceIds() {
			if d.GetResourceName() == "" || len(d.GetResourceName()) > maxName || id == "" || len(id) > maxName || len(out) == maxDevices {
				return nil, fmt.Errorf("read the devices of the kubelet: %w", errBadDevice)
			}
			out = append(out, lifecycle.KubeletDevice{Resource: d.GetResourceName(), ID: id, Nodes: nodes})
		}
	}
	return out, nil
}
