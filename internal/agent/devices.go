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

// deviceListInterval is how often the agent requests the list of devices from the kubelet. This is enough, because
// device plugins rarely start or stop.
const deviceListInterval = time.Minute

// deviceList has the devices of the node's device plugins, for reports. It implements kube.Service.
type deviceList struct {
	grants *podspec.Grants
	log    *slog.Logger

	mu      sync.Mutex     // guards all below
	devices []zones.Device // the devices in the kubelet's last list
}

// Run requests the list of devices from the kubelet at intervals, until ctx ends.
func (d *deviceList) Run(ctx context.Context) {
	d.grants.AwaitFirst(ctx)
	tick := time.NewTicker(deviceListInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		d.readDevices(ctx)
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// readDevices requests the list of devices from the kubelet once. If the kubelet does not answer, the known devices
// stay.
func (d *deviceList) readDevices(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, deviceListInterval)
	defer cancel()
	all, err := d.grants.Devices(ctx)
	if err != nil {
		d.log.Debug("the agent cannot get the list of devices from the kubelet", logkey.Err, err)
		return
	}
	known := make([]zones.Device, len(all))
	for i, v := range all {
		known[i] = zones.Device{Resource: v.Resource, ID: v.ID, Zones: v.Nodes}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.devices = known
}

// all returns the known devices. Callers must not change the slice.
func (d *deviceList) all() []zones.Device {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.devices
}
