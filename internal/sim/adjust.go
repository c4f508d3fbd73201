package sim

import (
	"errors"

	"github.com/containerd/nri/pkg/api"

	"github.com/trimtab/trimtab/internal/nriadjust"
)

// adjust applies an adjustment to the container's spec. A field that it cannot apply is an error. CDI devices, block I/O
// and RDT classes are kept by name: nothing here resolves them, and later events to plugins do not have the class.
func (c *container) adjust(a *api.ContainerAdjustment) error {
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
	nriadjust.Adjust(c.spec, a) // what it does not apply is kept by name above
	return nil
}
