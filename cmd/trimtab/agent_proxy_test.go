package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/trimtab/trimtab/internal/config"
)

// TestProxyFlags checks the CRI proxy's defaults, and its flags under the names that unit files of
// koordinator's runtime proxy use.
func TestProxyFlags(t *testing.T) {
	const socket, runtime = "/var/run/trimtab/cri.sock", "unix:///var/run/containerd/containerd.sock"
	for _, tc := range []struct {
		name, args string
		attach     string
		want       config.CRI
		err        string
	}{
		{name: "nothing said", attach: "nri", want: config.CRI{Socket: socket, Endpoint: runtime}},
		{name: "the mode alone", args: "--attach=cri", attach: "cri", want: config.CRI{Socket: socket, Endpoint: runtime}},
		{
			name: "a unit file of the runtime proxy's", attach: "cri",
			args: "--koord-runtimeproxy-endpoint=/run/rp.sock --remote-runtime-service-endpoint=/run/c.sock --remote-image-service-endpoint=/run/c.sock --backend-runtime-mode=Containerd",
			want: config.CRI{Socket: "/run/rp.sock", Endpoint: "unix:///run/c.sock"},
		},
		{
			name: "an image service of its own", attach: "cri",
			args: "--attach=cri --remote-runtime-service-endpoint=unix:///run/c.sock --remote-image-service-endpoint=unix:///run/i.sock",
			want: config.CRI{Socket: socket, Endpoint: "unix:///run/c.sock", ImageEndpoint: "unix:///run/i.sock"},
		},
		{
			name: "the attachment chosen otherwise", attach: "bypass",
			args: "--attach=bypass --koord-runtimeproxy-endpoint=/run/rp.sock", want: config.CRI{Socket: "/run/rp.sock", Endpoint: runtime},
		},
		{name: "Docker", args: "--backend-runtime-mode=Docker", err: "cri-dockerd"},
		{name: "a relative path", args: "--koord-runtimeproxy-endpoint=rp.sock", err: "cri.socket"},
		{name: "a TCP endpoint", args: "--remote-runtime-service-endpoint=tcp://127.0.0.1:1", err: "cri.endpoint"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := config.Default()
			var f agentFlags
			set := pflag.NewFlagSet("agent", pflag.ContinueOnError)
			set.StringVar(&f.attach, "attach", "", "")
			f.proxy.add(set, c.CRI)
			if err := set.Parse(strings.Fields(tc.args)); err != nil {
				t.Fatal(err)
			}
			switch err := f.apply(&c); {
			case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
				t.Errorf("error %v, want one about %s", err, tc.err)
			case tc.err == "" && err != nil:
				t.Error(err)
			case tc.err == "":
				tc.want.DisabledStages, tc.want.OCIWrapper = []string{}, config.Default().CRI.OCIWrapper
				if d := cmp.Diff(tc.want, c.CRI); d != "" || c.Attach != tc.attach {
					t.Errorf("attach %s, want %s\n%s", c.Attach, tc.attach, d)
				}
			}
		})
	}
}
