import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

import org.apache.kafka.common.utils.internals.Exit;

/**
 * Runs the main methods of Apache Kafka's tools one after the other in one JVM, whose start takes longer than most of them. A command is a line of fields
 * separated by tabs: the class, a file for its standard output, one for its standard error, its standard input, its arguments. The answer is its exit status.
 */
public class Tools {
    static class Exited extends Error {
        Exited(int status) { super("status " + status, null, false, false); }
    }

    static Integer status; // of the tool that runs: the first one counts, for some tools catch what ends them and end again

    static synchronized void exit(int code) {
        if (status == null) status = code;
        throw new Exited(code);
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        Exit.setExitProcedure((code, message) -> exit(code));
        Exit.setHaltProcedure((code, message) -> exit(code));
        List<Runnable> hooks = new ArrayList<>(); // what a tool does when its JVM ends
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        answers.println("ready");
        for (String line; (line = commands.readLine()) != null; ) {
            String[] f = line.split("\t", -1);
            status = null;
            hooks.clear();
            PrintStream err = System.err;
            try (PrintStream o = new PrintStream(new FileOutputStream(f[1]), false, StandardCharsets.UTF_8);
                 PrintStream e = new PrintStream(new FileOutputStream(f[2]), false, StandardCharsets.UTF_8)) {
                System.setOut(o);
                System.setErr(e);
                System.setIn(new ByteArrayInputStream(f[3].getBytes(StandardCharsets.UTF_8)));
                try {
                    Class.forName(f[0]).getMethod("main", String[].class).invoke(null, (Object) Arrays.copyOfRange(f, 4, f.length));
                } catch (InvocationTargetException ex) {
                    if (!(ex.getCause() instanceof Exited)) {
                        ex.getCause().printStackTrace(e);
                        if (status == null) status = 1; // as the JVM would end
                    }
                } catch (Throwable ex) {
                    ex.printStackTrace(e);
                    status = 99;
                }
                for (Runnable hook : hooks) hook.run();
            } finally {
                System.setOut(answers);
                System.setErr(err);
            }
            answers.println(status == null ? 0 : status);
            answers.flush();
        }
    }
}
