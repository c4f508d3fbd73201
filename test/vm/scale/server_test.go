package scale

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/trimtab/trimtab/test/vm/controlplane"
)

// usage is what a process has used so far, and its memory.
type usage struct {
	cpu      time.Duration
	resident int64 // MiB
}

func used(b testing.TB, pid int) usage {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	// The second field is a name in brackets; user and system time are the 14th and 15th.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const ticks, page = 100, 4096 // in seconds; in bytes
	var n [3]int64
	for i, at := range []int{11, 12, 21} {
		if n[i], err = strconv.ParseInt(fields[at], 10, 64); err != nil {
			b.Fatal(err)
		}
	}
	return usage{time.Duration(n[0]+n[1]) * time.Second / ticks, n[2] * page >> 20}
}

var answered = regexp.MustCompile(`^apiserver_request_total\{(?:.*,)?resource="([a-z]+)".*verb="([A-Z]+)".*\} ([0-9.e+]+)$`)

// compared are the resources that only agents use, and no part of the control plane.
var compared = map[string]bool{"nodes": true, "pods": true, "events": true, "configmaps": true, "noderesourcetopologies": true}

// answers reads how many requests the API server has answered, by verb and resource. Watches are left out,
// because they count only when they end.
func answers(b testing.TB, p *controlplane.Plane) map[string]int {
	b.Helper()
	c := p.Config(controlplane.Admin)
	c.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(c)
	if err != nil {
		b.Fatal(err)
	}
	page, err := client.Get().AbsPath("/metrics").DoRaw(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	out := map[string]int{}
	for lines := bufio.NewScanner(bytes.NewReader(page)); lines.Scan(); {
		m := answered.FindStringSubmatch(lines.Text())
		if m == nil || !compared[m[1]] || m[2] == "WATCH" {
			continue
		}
		n, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			b.Fatal(err)
		}
		out[strings.ToLower(m[2])+" "+m[1]] += int(n)
	}
	return out
}

// sameCount fails if the API server counted other requests than the meters. Verbs are added up, because it
// has several names for a POST and an apply.
func sameCount(b testing.TB, server map[string]int, ours ...reading) {
	b.Helper()
	sum := func(all map[string]int) map[string]int {
		out := map[string]int{}
		for what, n := range all {
			if verb, resource, _ := strings.Cut(what, " "); verb != "watch" && compared[resource] {
				out[resource] += n
			}
		}
		return out
	}
	want := map[string]int{}
	for _, r := range ours {
		for resource, n := range sum(r.requests) {
			want[resource] += n
		}
	}
	for resource, n := range sum(server) {
		// Some requests are running while the counts are read.
		if off := n - want[resource]; off > 5+n/50 || -off > 5+n/50 {
			b.Errorf("%s: the API server counted %d requests, and we sent %d", resource, n, want[resource])
		}
	}
}
