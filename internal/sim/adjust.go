package sim

import (
	"errors"

	"github.com/containerd/nri/pkg/api"

	"github.com/trimtab/trimtab/internal/nriadjust"
)

// adjust applies an adjustment to the container's spec. A field that it cannot apply is an error. It keeps CDI
// devices, block I/O and RDT classes by name: the simulator does not resolve them, and later events do not report
// the class to plugins.
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
	nriadjust.Adjust(c.spec, a) // parts that it does not apply are kept by name above
	return nil
}
