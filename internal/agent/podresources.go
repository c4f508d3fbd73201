package agent

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/trimtab/trimtab/internal/extend/qrm"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/podspec"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/report/podresources"
	"github.com/trimtab/trimtab/internal/sleep"
)

// reopenPodResources is the pause before the agent opens its PodResources socket again.
const reopenPodResources = time.Second

// servePodResources answers the PodResources API until ctx ends. If the socket cannot be opened, it tries
// again later, because a node without this socket still needs its QoS.
func (a *Agent) servePodResources(ctx context.Context) {
	path := a.opt.Config.PodResources.Socket
	var kubelet podresources.Kubelet
	if from := a.opt.Config.PodSpec.Kubelet.PodResourcesSocket; from != "" {
		client := podspec.NewResourceLister(from, a.opt.DialKubelet)
		defer func() { _ = client.Close() }()
		kubelet = client
	}
	server := podresources.New(func() nodeview.Holdings { return nodeview.HoldingsOf(a.conductor) }, kubelet, a.pluginAmounts(), a.log)
	reported := ""
	for {
		err := server.Serve(ctx, path)
		if ctx.Err() != nil {
			return
		}
		if err != nil && err.Error() != reported {
			reported = err.Error()
			a.log.Error("the PodResources socket has stopped; the agent opens it again", logkey.Socket, path, logkey.Err, err)
		}
		if !sleep.For(ctx, reopenPodResources) {
			return
		}
	}
}

// pluginAmounts returns the resource plugins as the PodResources server reads them; nil for none.
func (a *Agent) pluginAmounts() podresources.Plugins {
	if a.plugins == nil {
		return nil
	}
	return amounts{a.plugins}
}

// amounts are the amounts of resource plugins.
type amounts struct{ m *qrm.Manager }

// Resources returns what plugins have allocated for the containers of a pod.
func (a amounts) Resources(podUID string) map[string][]podresources.Resource {
	of := a.m.Amounts(podUID)
	out := make(map[string][]podresources.Resource, len(of))
	for ctr, all := range of {
		for i := range all {
			r := resourceOf(&all[i])
			r.OtherTotal, r.OtherByNode = r.Total, r.ByNode
			out[ctr] = append(out[ctr], r)
		}
	}
	return out
}

// Allocatable returns what plugins can allocate.
func (a amounts) Allocatable(ctx context.Context) (out []podresources.Resource) {
	for _, one := range a.m.Allocatable(ctx) {
		r := resourceOf(&one)
		r.OtherTotal, r.OtherByNode = one.Capacity, quantities(one.CapacityByNode)
		out = append(out, r)
	}
	return out
}

func resourceOf(a *qrm.Amount) podresources.Resource {
	return podresources.Resource{Name: a.Resource, OfNode: a.OfNode, IsScalar: a.IsScalar, Total: a.Total, ByNode: quantities(a.ByNode)}
}

func quantities(byNode map[int]float64) (out []podresources.Quantity) {
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		out = append(out, podresources.Quantity{Value: byNode[node], Node: uint64(max(node, 0))}) //nolint:gosec // an id is not negative
	}
	return out
}
