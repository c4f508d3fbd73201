package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/trimtab/trimtab/internal/config"
)

// proxyFlags are the flags of the CRI proxy. They have the same names as the flags of Koordinator's runtime proxy
// (1.7). A systemd unit of that proxy therefore works for the agent after a change of the program's path.
type proxyFlags struct {
	socket  string // on which the CRI proxy listens
	runtime string // the runtime's CRI socket
	images  string // the CRI socket of a separate image service
	mode    string // accepted for Koordinator's unit; only Containerd is valid, in upper or lower case
}

// add adds the flags to a flag set. d has the defaults for the help texts.
func (f *proxyFlags) add(flags *pflag.FlagSet, d config.CRI) {
	flags.StringVar(&f.socket, "koord-runtimeproxy-endpoint", "", "serve the CRI proxy on this socket (default "+d.Socket+")")
	flags.StringVar(&f.runtime, "remote-runtime-service-endpoint", "", "the runtime's CRI socket (default "+strings.TrimPrefix(d.Endpoint, "unix://")+")")
	flags.StringVar(&f.images, "remote-image-service-endpoint", "", "the CRI socket of a separate image service (default: the runtime's socket)")
	flags.StringVar(&f.mode, "backend-runtime-mode", "", "only Containerd is valid, and means any CRI runtime (default Containerd)")
}

// apply copies the value of each flag that the user gave to the key in c that belongs to the flag. The parameter attach
// is the value of the flag --attach. If attach is "" and the flag for the proxy's socket is given, apply also sets the
// key attach to cri.
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
