package http2_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestNghttp loads files from a server of nghttp2 and uploads files to one of net/http, with all options of nghttp that
// change frames.
func TestNghttp(t *testing.T) {
	nghttp := tool(t, "nghttp")
	files, filesRelayed := startRelay(t, startNghttpd(t))
	sums, sumsRelayed := startRelay(t, startServer(t))
	upload := filepath.Join(t.TempDir(), "upload")
	sent := some(3 << 20)
	if err := os.WriteFile(upload, sent, 0o600); err != nil {
		t.Fatal(err)
	}
	large := some(5 << 20)
	long := "--header=x-long: " + strings.Repeat("x", 30_000)
	ways := [][]string{
		nil, {"--no-push"}, {"--padding=255"}, {"--continuation"}, {"--header-table-size=0"}, {"--header-table-size=1048576"},
		{"--window-bits=10", "--connection-window-bits=17"}, {"--window-bits=30", "--connection-window-bits=30"},
		{"--max-concurrent-streams=1"}, {"--no-dep"}, {long},
	}
	for _, way := range ways {
		t.Run(fmt.Sprintf("%.50v", way), func(t *testing.T) {
			if got := run(t, nil, nghttp, append(slices.Clip(way), "http://"+files+"/large")...); got != string(large) {
				t.Errorf("received %d bytes that differ from those sent", len(got))
			}
			for _, path := range []string{"/sum", "/held/sum"} {
				got := run(t, nil, nghttp, append(slices.Clip(way), "--data="+upload, "http://"+sums+path)...)
				if want := fmt.Sprintf("%d bytes %x", len(sent), sha256.Sum256(sent)); !strings.HasPrefix(got, want) {
					t.Errorf("%s: %.300s", path, got)
				}
			}
		})
	}
	pushed := run(t, nil, nghttp, "--null-out", "--stat", "http://"+files+"/pushes")
	if !strings.Contains(pushed, "/pushed") {
		t.Errorf("nothing was pushed: %s", pushed)
	}
	t.Logf("nghttp: %d ways, over %d relayed connections", len(ways), filesRelayed()+sumsRelayed())
}

// TestH2load makes many concurrent requests over a few connections with h2load.
func TestH2load(t *testing.T) {
	h2load := tool(t, "h2load")
	address, relayed := startRelay(t, startServer(t))
	body := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(body, bytes.Repeat([]byte("body"), 5000), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"requests":               {"-n", "3000", "-m", "100", "http://" + address + "/"},
		"answers of 100 kB":      {"-n", "400", "-m", "20", "http://" + address + "/bytes/100000"},
		"messages of 20 kB":      {"-n", "1000", "-m", "50", "-d", body, "http://" + address + "/sum"},
		"messages that are held": {"-n", "1000", "-m", "50", "-d", body, "http://" + address + "/held/sum"},
		"small windows":          {"-n", "400", "-m", "20", "-w", "12", "-W", "16", "http://" + address + "/bytes/100000"},
	} {
		t.Run(name, func(t *testing.T) {
			got := run(t, nil, h2load, append([]string{"-c", "4"}, args...)...)
			n := args[1]
			if want := fmt.Sprintf("%s done, %s succeeded, 0 failed, 0 errored", n, n); !strings.Contains(got, want) {
				t.Errorf("want %s:\n%s", want, got)
			}
		})
	}
	t.Logf("h2load: 5800 requests over %d relayed connections", relayed())
}
