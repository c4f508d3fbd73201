package real_test

import (
	"fmt"
	"testing"

	"github.com/trimtab/trimtab/test/real"
)

// BenchmarkHostedPlugin creates and removes a container: under containerd's own NRI, and with its NRI off behind the
// proxy, alone and as a host, with empty plugins.
func BenchmarkHostedPlugin(b *testing.B) {
	for _, s := range []struct {
		name    string
		native  bool
		hosts   bool
		plugins int
	}{
		{"containerd", true, false, 0},
		{"containerd-1", true, false, 1},
		{"proxy", false, false, 0},
		{"host", false, true, 0},
		{"host-1", false, true, 1},
		{"host-10", false, true, 10},
	} {
		b.Run(s.name, func(b *testing.B) {
			var c *real.Containerd
			socket := ""
			switch {
			case s.native: // with the agent beside, as its plugin
				c = real.Start(b)
				startTrimtab(b, c, "")
				socket = c.NRISocket()
			case s.hosts:
				c = real.Start(b, real.WithoutNRI())
				_, socket = startHost(b, c, "")
			default:
				c = real.Start(b, real.WithoutNRI())
				startProxy(b, c, "")
			}
			for i := range s.plugins {
				newPlugin(b).connect(socket, fmt.Sprintf("empty%d", i), fmt.Sprintf("%02d", i))
			}
			pod := c.RunPod(plain("bench", ""))
			n := 0
			for b.Loop() {
				n++
				id := c.CreateContainer(pod, real.ContainerSpec{Name: fmt.Sprintf("c%d", n)})
				b.StopTimer()
				c.RemoveContainer(id)
				b.StartTimer()
			}
		})
	}
}
