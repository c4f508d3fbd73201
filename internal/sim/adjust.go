package sim

import (
	"errors"

	"github.com/containerd/nri/pkg/api"

	"github.com/trimtab/trimtab/internal/nriadjust"
)

// applyAdjustment applies an adjustment to the container's spec. Of CDI devices, block I/O classes and RDT classes, it
// stores only the names, because the embedded runtime does not resolve them. It returns an error for a seccomp policy.
func (c *container) applyAdjustment(a *api.ContainerAdjustment) error {
	if a == nil {
		return nil
	}
	l := a.GetLinux()
	if l.GetSeccompPolicy() != nil {
		return errors.New("a plugin set a seccomp policy, but the embedded runtime cannot apply seccomp policies")
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
	nriadjust.Adjust(c.spec, a) // it does not apply the classes and CDI devices, whose names are stored above
	return nil
}
