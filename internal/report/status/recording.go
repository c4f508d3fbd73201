package status

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
)

// RecordingSource is a Source that can record events. The server offers this if the Source supports it.
type RecordingSource interface {
	// Record writes the first line of a recording and each event from now on, one JSON document a line, until ctx
	// ends. It calls flush when no more events wait.
	Record(ctx context.Context, withoutEnv bool, w io.Writer, flush func() error) error
}

// record streams a recording for as long as the client listens.
func record(w http.ResponseWriter, r *http.Request, src Source) {
	can, ok := src.(RecordingSource)
	if !ok {
		answer(w, http.StatusNotFound, failure{"this agent cannot record"})
		return
	}
	w.Header().Set("Content-Type", "application/jsonlines")
	out := http.NewResponseController(w)
	// The client has disconnected, or the agent ends: nobody would read the error.
	_ = can.Record(r.Context(), r.URL.Query().Get("withoutEnv") == "true", timeoutWriter{w}, out.Flush)
}

// timeoutWriter is an answer that gives the client a new deadline for each line.
type timeoutWriter struct{ http.ResponseWriter }

func (p timeoutWriter) Write(line []byte) (int, error) {
	deadline(p.ResponseWriter)
	return p.ResponseWriter.Write(line)
}

// maxLine limits one line of a recording, in bytes. The first line describes all that runs.
const maxLine = 256 << 20

// Record passes the first line of a recording and then each event to take, one JSON document at a time, without its
// line end. It continues until ctx ends, which is no error, or until the agent ends. take must not keep the text.
func (c *Client) Record(ctx context.Context, withoutEnv bool, take func(line []byte) error) error {
	body, err := c.send(ctx, http.MethodGet, "recording", url.Values{"withoutEnv": {strconv.FormatBool(withoutEnv)}}, nil)
	if err != nil {
		return ended(ctx, err)
	}
	defer body.Close()
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 0, 1<<16), maxLine)
	for lines.Scan() {
		if err := take(lines.Bytes()); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return ended(ctx, fmt.Errorf("read the recording: %w", err))
	}
	return ended(ctx, &Unreachable{Path: c.path, Hint: "the agent stopped: it closed the stream of events", Err: errors.New("the stream ended")})
}
