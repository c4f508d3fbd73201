package agent

import (
	"cmp"
	"fmt"
	"os"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trimtab/trimtab/internal/kube/publish"
	"github.com/trimtab/trimtab/internal/report/devices"
)

// deviceReport makes the report of the node's GPUs and RDMA cards for the node's Device object (Koordinator).
type deviceReport struct {
	// checkReportable returns the reason why the agent cannot report the node's devices now; nil if it can.
	checkReportable func() error
	read            func() (devices.Inventory, error) // reads the devices of this node

	mu        sync.Mutex        // guards all below
	inventory devices.Inventory // the devices that ready read last
	labels    map[string]string // labels of the Node
}

func (a *Agent) newDeviceReport() *deviceReport {
	proc, sys := os.DirFS(cmp.Or(a.opt.Proc, "/proc")), os.DirFS(a.opt.Config.Paths.Sys)
	return &deviceReport{checkReportable: a.checkReportable, read: func() (devices.Inventory, error) { return devices.Read(proc, sys) }}
}

// report returns the report for the node's Device object. The publisher reads the devices every minute, because no
// event reports their changes.
func (r *deviceReport) report() publish.Report {
	return publish.Report{
		Kind:     "Device",
		Resource: schema.GroupVersionResource{Group: "scheduling.koordinator.sh", Version: "v1alpha1", Resource: "devices"},
		Key:      "spec.devices", Ready: r.ready, Changed: func() <-chan struct{} { return nil },
		Make: func() (map[string]string, map[string]any) {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.inventory.Device(r.labels)
		},
		OnNodeLabels: func(labels map[string]string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.labels = labels
		},
		Note: func() string {
			r.mu.Lock()
			defer r.mu.Unlock()
			if missing := r.inventory.MissingText(r.labels); missing != "" {
				return "the Device object does not have: " + missing
			}
			return ""
		},
	}
}

// ready reads the devices. It returns the reason why the devices cannot be reported; nil if they can.
func (r *deviceReport) ready() error {
	if err := r.checkReportable(); err != nil {
		return err
	}
	has, err := r.read()
	if err != nil {
		return fmt.Errorf("read the devices of the node: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inventory = has
	return nil
}
