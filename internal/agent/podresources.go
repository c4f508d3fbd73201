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

// podResourcesReopenPause is the pause before the agent opens its PodResources socket again.
const podResourcesReopenPause = time.Second

// servePodResources serves the PodResources API until ctx ends. If serving fails, it logs the error and opens the
// socket again, because the agent must also run without this socket.
func (a *Agent) servePodResources(ctx context.Context) {
	path := a.opt.Config.PodResources.Socket
	var kubelet podresources.Kubelet
	if from := a.opt.Config.PodSpec.Kubelet.PodResourcesSocket; from != "" {
		client := podspec.NewResourceLister(from, a.opt.DialKubelet)
		defer func() { _ = client.Close() }()
		kubelet = client
	}
	server := podresources.New(func() nodeview.Holdings { return nodeview.HoldingsOf(a.conductor, a.ownableDevices()) }, kubelet, a.pluginAmounts(), a.log)
	reported := ""
	for {
		err := server.Serve(ctx, path)
		if ctx.Err() != nil {
			return
		}
		if err != nil && err.Error() != reported {
			reported = err.Error()
			a.log.Error("the agent does not serve the PodResources socket now; it tries again", logkey.Socket, path, logkey.Err, err)
		}
		if !sleep.For(ctx, podResourcesReopenPause) {
			return
		}
	}
}

// pluginAmounts adapts the manager of resource plugins to the PodResources server; nil if there is none.
func (a *Agent) pluginAmounts() podresources.Plugins {
	if a.resourcePlugins == nil {
		return nil
	}
	return a.resourcePlugins
}
