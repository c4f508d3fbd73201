package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/trimtab/trimtab/internal/config"
)

// proxyFlags are the flags of the CRI proxy. They have the names of the flags of Koordinator's runtime proxy (1.7), so
// that its systemd unit works after a change of the program's path.
type proxyFlags struct{ socket, runtime, images, mode string }

func (f *proxyFlags) add(flags *pflag.FlagSet, d config.CRI) {
	flags.StringVar(&f.socket, "koord-runtimeproxy-endpoint", "", "serve the CRI proxy on this socket (default "+d.Socket+")")
	flags.StringVar(&f.runtime, "remote-runtime-service-endpoint", "", "the runtime's CRI socket (default "+strings.TrimPrefix(d.Endpoint, "unix://")+")")
	flags.StringVar(&f.images, "remote-image-service-endpoint", "", "socket of an image service of its own (default the runtime's)")
	flags.StringVar(&f.mode, "backend-runtime-mode", "", "only Containerd, which means any CRI runtime (default Containerd)")
}

// apply sets the keys of c to the flags that are set. If the flag for the proxy's socket is set, apply also sets attach
// to cri, unless the flag --attach is set.
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
