// Watches opens many watches of one resource at once, over a few HTTP clients, as
// programs written in Go do: each client has a transport of its own with the settings of client-go.
// It prints how many watches were opened and how many received the event of an object that
// is created when all of them are open, and fails unless that is all of them.
//
//	watches KUBECONFIG h2|http1 CLIENTS WATCHES PATH OBJECT
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// The time for all watches to open, and for all of them to receive the event.
const patience = 3 * time.Minute

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// client has the transport that client-go makes, and shares it with no other client.
func client(config *rest.Config, protocol string) (*http.Client, error) {
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		// client-go's is ten seconds, in which a busy machine does not do a thousand handshakes.
		TLSHandshakeTimeout: patience,
		TLSClientConfig:     tls,
		MaxIdleConnsPerHost: 25,
		DialContext:         (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
	}
	if protocol == "h2" {
		transport = utilnet.SetTransportDefaults(transport)
	} else {
		tls.NextProtos = []string{"http/1.1"}
		transport.ForceAttemptHTTP2 = false
	}
	wrapped, err := rest.HTTPWrappersForConfig(config, transport)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: wrapped}, nil
}

// watch opens one watch, tells that it is open, and reads its first event.
func watch(ctx context.Context, client *http.Client, url string, opened func()) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("not opened: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(response.Body, 500))
		return fmt.Errorf("not opened: %s: %s", response.Status, body)
	}
	opened()
	line, err := bufio.NewReader(response.Body).ReadString('\n')
	if err != nil {
		return fmt.Errorf("cut: %w", err)
	}
	if !strings.Contains(line, `"ADDED"`) {
		return fmt.Errorf("unexpected event: %s", line)
	}
	return nil
}

func create(ctx context.Context, client *http.Client, url, object string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(object))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusCreated {
		body, _ := io.ReadAll(io.LimitReader(response.Body, 500))
		return fmt.Errorf("create: %s: %s", response.Status, body)
	}
	return nil
}

func run(arguments []string) error {
	if len(arguments) != 6 {
		return fmt.Errorf("usage: watches KUBECONFIG h2|http1 CLIENTS WATCHES PATH OBJECT")
	}
	protocol, path, object := arguments[1], arguments[4], arguments[5]
	count, err := strconv.Atoi(arguments[2])
	if err != nil {
		return err
	}
	watches, err := strconv.Atoi(arguments[3])
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", arguments[0])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	clients := make([]*http.Client, count)
	for i := range clients {
		if clients[i], err = client(config, protocol); err != nil {
			return err
		}
	}
	url := strings.TrimSuffix(config.Host, "/") + path
	opened, ended := make(chan struct{}, watches), make(chan error, watches)
	var group sync.WaitGroup
	for i := range watches {
		group.Add(1)
		go func() {
			defer group.Done()
			open := func() { opened <- struct{}{} }
			ended <- watch(ctx, clients[i%count], url+"?watch=1&timeoutSeconds=600", open)
		}()
	}
	failures, open := map[string]int{}, 0
	note := func(err error) {
		text := err.Error()
		if at := strings.LastIndex(text, ": "); at >= 0 && strings.Contains(text, "->") {
			text = "not opened" + text[at:]
		}
		failures[text]++
	}
	for range watches {
		select {
		case <-opened:
			open++
		case err := <-ended:
			if err == nil {
				err = fmt.Errorf("an event before there was one")
			}
			note(err)
		}
	}
	if len(failures) == 0 {
		// A client of its own: an HTTP/1.1 connection more, as controllers have.
		writer, err := client(config, protocol)
		if err != nil {
			return err
		}
		if err := create(ctx, writer, url, object); err != nil {
			return err
		}
		for range watches {
			if err := <-ended; err != nil {
				note(err)
			}
		}
	}
	fmt.Printf("%d of %d watches opened\n", open, watches)
	for text, times := range failures {
		fmt.Printf("%d times: %s\n", times, text)
	}
	if len(failures) > 0 {
		return fmt.Errorf("not all watches were served")
	}
	return nil
}
