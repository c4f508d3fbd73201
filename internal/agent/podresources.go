package agent

import (
	"context"
	"time"

	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/podspec"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/report/podresources"
	"github.com/trimtab/trimtab/internal/sleep"
)

// reopenPodResources is the pause before the agent opens its PodResources socket again.
const reopenPodResources = time.Second

// servePodResources answers the PodResources API until ctx ends. If the socket cannot be opened,
// it is opened again later: a node without it still needs its QoS.
func (a *Agent) servePodResources(ctx context.Context) {
	path := a.opt.Config.PodResources.Socket
	var kubelet podresources.Kubelet
	if from := a.opt.Config.PodSpec.Kubelet.PodResourcesSocket; from != "" {
		client := podspec.NewResourceLister(from, a.opt.DialKubelet)
		defer func() { _ = client.Close() }()
		kubelet = client
	}
	server := podresources.New(func() nodeview.Holdings { return nodeview.HoldingsOf(a.conductor) }, kubelet, a.log)
	reported := ""
	for {
		err := server.Serve(ctx, path)
		if ctx.Err() != nil {
			return
		}
		if err != nil && err.Error() != reported {
			reported = err.Error()
			a.log.Error("PodResources are not served; the socket is opened again", logkey.Socket, path, logkey.Err, err)
		}
		if !sleep.For(ctx, reopenPodResources) {
			return
		}
	}
}
