// Command forward forwards TCP connections to another address, as kube-proxy does on a node for the service of the API
// server. Guests need kube-proxy for nothing else, so this program replaces it.
package main

import (
	"io"
	"log"
	"net"
	"os"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: forward LISTEN-ADDRESS TARGET-ADDRESS")
	}
	l, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	for {
		c, err := l.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go forwardConn(c, os.Args[2])
	}
}

// forwardConn connects to the target address, and copies data in both directions until one side ends.
func forwardConn(here net.Conn, target string) {
	defer here.Close()
	there, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer there.Close()
	go func() {
		_, _ = io.Copy(there, here)
		there.Close()
		here.Close()
	}()
	_, _ = io.Copy(here, there)
}
