package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/trimtab/trimtab/internal/config"
)

// proxyFlags are the flags of the CRI proxy under the names that koordinator's
// runtime proxy (1.7) gave them, so that a unit file needs only another program.
type proxyFlags struct{ socket, runtime, images, mode string }

func (f *proxyFlags) add(flags *pflag.FlagSet, d config.CRI) {
	flags.StringVar(&f.socket, "koord-runtimeproxy-endpoint", "", "serve the CRI proxy on this socket (default "+d.Socket+")")
	flags.StringVar(&f.runtime, "remote-runtime-service-endpoint", "", "the runtime's CRI socket (default "+strings.TrimPrefix(d.Endpoint, "unix://")+")")
	flags.StringVar(&f.images, "remote-image-service-endpoint", "", "socket of an image service of its own (default the runtime's)")
	flags.StringVar(&f.mode, "backend-runtime-mode", "", "only Containerd, which means any CRI runtime (default Containerd)")
}

// apply sets the flags that were given over the values of the file. A socket to serve on also chooses the
// attachment, unless --attach is given.
func (f *proxyFlags) apply(c *config.Config, attach string) error {
	if f.mode != "" && !strings.EqualFold(f.mode, "containerd") {
		return fmt.Errorf("flags: --backend-runtime-mode=%s: set it to Containerd, which means any CRI runtime; for Docker use cri-dockerd as the runtime", f.mode)
	}
	if f.socket != "" {
		c.CRI.Socket = strings.TrimPrefix(f.socket, "unix://")
		if attach == "" {
			c.Attach = "cri"
		}
	}
	if f.runtime != "" {
		c.CRI.Endpoint = "unix://" + strings.TrimPrefix(f.runtime, "unix://")
	}
	if f.images != "" {
		c.CRI.ImageEndpoint = "unix://" + strings.TrimPrefix(f.images, "unix://")
		if c.CRI.ImageEndpoint == c.CRI.Endpoint {
			c.CRI.ImageEndpoint = ""
		}
	}
	return nil
}
