// The broker's own counters over HTTP, without JMX's ports: GET /MBEAN?ATTRIBUTE on 127.0.0.1 answers with the attribute, 0 where nothing was counted yet.
package peer;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import javax.management.InstanceNotFoundException;
import javax.management.ObjectName;

final class Meters {
    private Meters() {}

    static HttpServer start(int port) {
        try {
            HttpServer s = HttpServer.create(new InetSocketAddress(InetAddress.getByName("127.0.0.1"), port), 0);
            s.createContext("/", Meters::answer);
            s.start();
            return s;
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }

    private static void answer(HttpExchange x) throws IOException {
        int status = 200;
        String text;
        try {
            Object v = ManagementFactory.getPlatformMBeanServer().getAttribute(new ObjectName(x.getRequestURI().getPath().substring(1)), x.getRequestURI().getQuery());
            text = String.valueOf(v);
        } catch (InstanceNotFoundException e) {
            text = "0";
        } catch (Exception e) {
            status = 500;
            text = e.toString();
        }
        byte[] b = text.getBytes();
        x.sendResponseHeaders(status, b.length);
        x.getResponseBody().write(b);
        x.close();
    }
}
