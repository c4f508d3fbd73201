package http2_test

import (
	"bytes"
	"encoding/xml"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// report is h2spec's report in JUnit's format.
type report struct {
	Suites []struct {
		ID    string `xml:"id,attr"`
		Cases []struct {
			Name    string    `xml:"classname,attr"`
			Failure *string   `xml:"failure"`
			Error   *string   `xml:"error"`
			Skipped *struct{} `xml:"skipped"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

// h2specCases is the number of cases of h2spec 2.2.1, including the strict ones.
const h2specCases = 146

// h2spec runs all cases against an address and returns the number that passed, and the failures with their reasons.
func h2spec(t *testing.T, address, path string) (passed int, failed map[string]string) {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	into := filepath.Join(t.TempDir(), "report.xml")
	run(t, []int{1}, filepath.Join(built(t, "h2spec"), "h2spec"), "-h", host, "-p", port, "-P", path, "-S", "-o", "5", "-j", into)
	text, err := os.ReadFile(into)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	// A case that fails may quote bytes of a frame that no XML may hold.
	text = bytes.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' {
			return '?'
		}
		return r
	}, text)
	if err := xml.Unmarshal(text, &r); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	failed = map[string]string{}
	for _, s := range r.Suites {
		for _, c := range s.Cases {
			name := s.ID + " " + c.Name
			switch {
			case c.Failure != nil:
				failed[name] = *c.Failure
			case c.Error != nil && wasReset(*c.Error):
				passed++
			case c.Error != nil:
				failed[name] = *c.Error
			case c.Skipped != nil:
				failed[name] = "h2spec skipped it"
			default:
				passed++
			}
		}
	}
	return passed, failed
}

// wasReset reports whether a case failed only because a connection that may be closed was reset. A socket that is closed
// before all was read from it resets its peer. h2spec means to take that for a closed connection, but it compares with
// an error that Go wraps in another (spec/connection.go, WaitEvent).
func wasReset(why string) bool {
	expected, actual, _ := strings.Cut(why, "\nError: ")
	return slices.Contains(strings.Split(expected, "\n"), "Connection closed") && strings.HasSuffix(actual, "connection reset by peer")
}

// TestH2spec runs all cases of h2spec, including the strict ones, against a relayed server of nghttp2, with relayed and
// with held requests. None may fail or be skipped.
func TestH2spec(t *testing.T) {
	server := startNghttpd(t)
	for name, path := range map[string]string{"passing": "/", "held": "/held/"} {
		t.Run(name, func(t *testing.T) {
			address, relayed := startRelay(t, server)
			passed, failed := h2spec(t, address, path)
			for name, why := range failed {
				t.Errorf("%s: %s", name, why)
			}
			if passed < h2specCases {
				t.Errorf("%d cases passed, want %d", passed, h2specCases)
			}
			t.Logf("h2spec: %d cases passed, %d failed, over %d relayed connections", passed, len(failed), relayed())
		})
	}
}
