package agent

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/podspec"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/report/zones"
)

// devicesEvery is how often the kubelet is asked which devices there are: device
// plugins come and go seldom.
const devicesEvery = time.Minute

// deviceList is which devices the node has, for reports. It is a kube.Service.
type deviceList struct {
	grants *podspec.Grants
	log    *slog.Logger

	mu    sync.Mutex // guards all below
	known []zones.Device
}

// Run asks the kubelet until ctx ends.
func (d *deviceList) Run(ctx context.Context) {
	d.grants.AwaitFirst(ctx)
	tick := time.NewTicker(devicesEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		d.ask(ctx)
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// ask asks once. Without an answer, the known devices stay.
func (d *deviceList) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, devicesEvery)
	defer cancel()
	all, err := d.grants.Devices(ctx)
	if err != nil {
		d.log.Debug("which devices there are is not known", logkey.Err, err)
		return
	}
	known := make([]zones.Device, len(all))
	for i, v := range all {
		known[i] = zones.Device{Resource: v.Resource, ID: v.ID, Zones: v.Nodes}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known = known
}

// all are the devices that are known; they are not changed.
func (d *deviceList) all() []zones.Device {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known
}
