package podspec

import (
	"context"
	"fmt"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Device is a device that the kubelet can assign to a container.
type Device struct {
	// Resource is the extended resource, ID the device plugin's name for it.
	Resource, ID string
	// Nodes are the ids of the device's NUMA nodes, from its plugin; nil if that does not
	// report them.
	Nodes []int
}

// Devices lists the kubelet's devices, assigned or not.
func (g *Grants) Devices(ctx context.Context) ([]Device, error) {
	if g.o.Socket == "" {
		return nil, nil
	}
	select {
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if g.conn == nil { // not connected yet
		return nil, nil
	}
	answer, err := podresources.NewPodResourcesListerClient(g.conn).GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	if err != nil {
		return nil, g.explain(err)
	}
	return devicesOf(answer)
}

// devicesOf reads the devices of an answer.
func devicesOf(answer *podresources.AllocatableResourcesResponse) ([]Device, error) {
	var out []Device
	for _, d := range answer.GetDevices() {
		var nodes []int
		for _, n := range d.GetTopology().GetNodes() {
			if id := n.GetID(); id >= 0 && id <= maxNode { // a plugin that does not know the node reports -1, or no node
				nodes = append(nodes, int(id))
			}
		}
		for _, id := range d.GetDeviceIds() {
			if d.GetResourceName() == "" || len(d.GetResourceName()) > maxName || id == "" || len(id) > maxName || len(out) == maxDevices {
				return nil, fmt.Errorf("read the devices of the kubelet: %w", errBadDevice)
			}
			out = append(out, Device{Resource: d.GetResourceName(), ID: id, Nodes: nodes})
		}
	}
	return out, nil
}
