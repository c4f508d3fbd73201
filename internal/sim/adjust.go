package sim

import (
	"errors"

	"github.com/containerd/nri/pkg/api"

	"github.com/trimtab/trimtab/internal/nriadjust"
)

// applyAdjustment applies an adjustment to the container's spec. It only stores the names of CDI devices and of block
// I/O and RDT classes, because the embedded runtime does not resolve them. It returns an error for a seccomp policy.
func (c *container) applyAdjustment(a *api.ContainerAdjustment) error {
	if a == nil {
		return nil
	}
	l := a.GetLinux()
	if l.GetSeccompPolicy() != nil {
		return errors.New("the embedded runtime applies no seccomp policy")
	}
	if class := l.GetResources().GetBlockioClass(); class != nil {
		c.blockIO = class.GetValue()
	}
	if class := l.GetResources().GetRdtClass(); class != nil {
		c.rdt = class.GetValue()
	}
	for _, d := range a.GetCDIDevices() {
		c.cdi = append(c.cdi, d.GetName())
	}
	nriadjust.Adjust(c.spec, a) // Adjust does not apply the names that are stored above
	return nil
}
