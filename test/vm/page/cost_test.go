package page

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestCost prints the cost of an open page for an agent with 1,024 CPUs and 1,000 containers, and the cost
// without a page. The runtime is in the same process, so the result is an upper bound. It takes a minute,
// so only TRIMTAB_COST=1 runs it.
func TestCost(t *testing.T) {
	if os.Getenv("TRIMTAB_COST") == "" {
		t.Skip("TRIMTAB_COST=1 runs it")
	}
	n := newNode(t, "4s x 2n x 8l x 8c x 2t, 64GiB/node")
	n.start()
	for i := range 40 {
		n.owner("own", fmt.Sprintf("pod-%d", i), 4)
	}
	for i := range 480 {
		n.shared("share", fmt.Sprintf("pod-%d", i), 100)
		n.batch("batch", fmt.Sprintf("pod-%d", i))
	}
	n.work(func(int) float64 { return 0.5 })
	time.Sleep(5 * time.Second) // the decisions take effect
	const rest = 20 * time.Second
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	measure := func(what string) {
		before := used()
		time.Sleep(rest) // this is the measured time
		t.Logf("%s: %.2f %% of a CPU", what, 100*float64(used()-before)/float64(rest))
	}
	measure("without a page")
	r, err := http.Get(n.url() + "events")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(nil, 16<<20)
	sizes := make(chan string, 1000)
	go func() {
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "data: ") {
				sizes <- fmt.Sprintf("%s %d", lines.Text()[:min(30, len(lines.Text()))], len(lines.Text()))
			}
		}
	}()
	t.Log(<-sizes)
	measure("with one page, at rest")
	for len(sizes) > 1 {
		<-sizes
	}
	t.Log("each two seconds: ", <-sizes)
	before, bytes := used(), 0
	for i := range 20 {
		n.shared("new", fmt.Sprintf("pod-%d", i), 100)
		time.Sleep(time.Second)
	}
	for len(sizes) > 0 {

		var size int
		line := <-sizes
		_, _ = fmt.Sscanf(line[strings.LastIndex(line, " ")+1:], "%d", &size)

		bytes += size
	}
	t.Logf("with one page and a new pod a second: %.2f %% of a CPU, %d bytes a second", 100*float64(used()-before)/float64(20*time.Second), bytes/20)
}
